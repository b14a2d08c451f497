// Products of an int8 cache by VPDPBUSD, which multiplies unsigned by signed bytes and sums fours
// of them in int32: exact, whatever the order. Eight bits are enough for what the cache holds, but
// not for what it is multiplied with, so that takes two bytes:
//
//   query    q = scale · (128 · high + low)     high in [-127, 127], low in [-64, 63]
//   weight   p · v_scale = factor · (128 · high + low)     both in [0, 127]
//
// A weight is multiplied with its token's scale first; the largest of a split is 127 and 127. The
// sums of a whole split stay below 2^31.
#pragma once

#include "attention_avx512_common.h"
#include "rotation.h"

namespace octavo {
namespace {

struct VnniDot {
  using Vec = Avx512;
  using Sum = int32_t;
  static constexpr int kTile = 12;
  static constexpr bool kHideUnusedValues = false;  // weight 0 hides any integer
  static constexpr int kScales = 4 * kPiece;        // bytes before a piece's first row
  static constexpr int kQueryStride = kMaxHeadDim + 64;
  static constexpr int kWeightStride = kSplit + 64;
  static constexpr float kQueryRange = 127 * 128;
  static constexpr float kWeightRange = 127 * 128 + 127;

  struct Queries {
    alignas(64) int8_t high[kTile][kQueryStride];
    alignas(64) int8_t low[kTile][kQueryStride];
    float scales[kTile];
    int32_t offsets[kTile];  // what the 128 in each byte of K adds to the sum
  };
  struct Weights {
    alignas(64) uint8_t high[kTile][kWeightStride];
    alignas(64) uint8_t low[kTile][kWeightStride];
    float factors[kTile];
  };

  static void load_query(const float* query, int dim, float factor, int row, Queries& queries) {
    alignas(64) float rotated[kMaxHeadDim + 16];
    rotate_query(query, dim, factor, rotated);
    __m512 largest = _mm512_setzero_ps(), faults = _mm512_setzero_ps();
    for (int d = 0; d < dim; d += 16) {
      const __m512 q = _mm512_load_ps(rotated + d);
      largest = _mm512_max_ps(largest, _mm512_abs_ps(q));
      faults = _mm512_fmadd_ps(q, _mm512_setzero_ps(), faults);
    }
    const float max = _mm512_reduce_max_ps(largest);
    const __m512 inverse = _mm512_set1_ps(max > 0.0f ? kQueryRange / max : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    for (int d = 0; d < dim; d += 16) {
      const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(rotated + d), inverse));
      const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(64)), 7);
      const __m512i low = _mm512_sub_epi32(q, _mm512_slli_epi32(high, 7));
      store_bytes(high, queries.high[row] + d);
      store_bytes(low, queries.low[row] + d);
      sum = _mm512_add_epi32(sum, q);
    }
    // Not finite where a query is not: its integers mean nothing then.
    queries.scales[row] = max / kQueryRange + _mm512_reduce_add_ps(faults);
    queries.offsets[row] = 128 * _mm512_reduce_add_epi32(sum);
  }

  // scores[r][t] for the tokens of `count` pieces.
  template <int kRows>
  static void score(Pieces pieces, int count, int dim, const Queries& queries, float* scores) {
    constexpr int kWide = wide(kRows);
    int i = 0;
    for (; i + kWide <= count; i += kWide)
      score_pieces<kRows, kWide>(pieces + i, dim, queries, scores + i * kPiece);
    for (; i < count; i++) score_pieces<kRows, 1>(pieces + i, dim, queries, scores + i * kPiece);
  }

  // Turns scores into weights relative to 2^shift and returns their sum.
  static float weigh(float* scores, float shift, Pieces pieces, int count, int row,
                     Weights& weights) {
    const __m512 s = _mm512_set1_ps(shift), zero = _mm512_setzero_ps();
    __m512 total = zero;
    // As unsigned integers, whose largest is NaN if there is one.
    __m512i largest = _mm512_setzero_si512();
    for (int i = 0; i < count; i++) {
      const __m512 weight =
          exp2_for_rounding(_mm512_sub_ps(_mm512_load_ps(scores + i * kPiece), s));
      total = _mm512_add_ps(total, weight);
      // An unused slot's scale may be NaN.
      const __mmask16 used = _mm512_cmp_ps_mask(weight, zero, _CMP_NEQ_UQ);
      const __m512 scaled = _mm512_maskz_mul_ps(used, weight, _mm512_load_ps(pieces[i]));
      largest = _mm512_max_epu32(largest, _mm512_castps_si512(scaled));
      _mm512_store_ps(scores + i * kPiece, scaled);
    }
    const uint32_t bits = _mm512_reduce_max_epu32(largest);
    float max;
    memcpy(&max, &bits, 4);
    weights.factors[row] = max / kWeightRange;
    const __m512 inverse = _mm512_set1_ps(max == 0.0f ? 0.0f : kWeightRange / max);
    for (int i = 0; i < count; i++) {
      const __m512i q =
          _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(scores + i * kPiece), inverse));
      store_bytes(_mm512_srli_epi32(q, 7), weights.high[row] + i * kPiece);
      store_bytes(_mm512_and_si512(q, _mm512_set1_epi32(127)), weights.low[row] + i * kPiece);
    }
    return _mm512_reduce_add_ps(total);
  }

  template <int kRows>
  static void accumulate(Pieces pieces, int count, int padded_dim, const Weights& weights,
                         int32_t* sums) {
    constexpr int kWide = wide(kRows);
    int d = 0;
    for (; d + kWide * 16 <= padded_dim; d += kWide * 16)
      accumulate_dims<kRows, kWide>(pieces, count, padded_dim, d, weights, sums);
    for (; d < padded_dim; d += 16)
      accumulate_dims<kRows, 1>(pieces, count, padded_dim, d, weights, sums);
  }

  static __m512 sum(const int32_t* sums, const Weights& weights, int row) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)),
                         _mm512_set1_ps(weights.factors[row]));
  }

private:
  // rotate() in registers, of query · factor; zeros follow up to a whole vector.
  static void rotate_query(const float* query, int dim, float factor, float* out) {
    for (int begin = 0, run; begin < dim; begin += run) {
      run = rotation_run(dim - begin);
      const __m512 f = _mm512_set1_ps(factor * rotation_factor(run));
      const __mmask16 mask = run == 8 ? 0xff : 0xffff;
      for (int d = begin; d < begin + run; d += 16) {
        __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, query + d), f);
        x = butterfly(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
        x = butterfly(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
        x = butterfly(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
        if (run > 8) x = butterfly(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
        _mm512_store_ps(out + d, x);
      }
      for (int half = 16; half < run; half *= 2)
        for (int i = begin; i < begin + run; i += 2 * half)
          for (int j = i; j < i + half; j += 16) {
            const __m512 a = _mm512_load_ps(out + j), b = _mm512_load_ps(out + j + half);
            _mm512_store_ps(out + j, _mm512_add_ps(a, b));
            _mm512_store_ps(out + j + half, _mm512_sub_ps(a, b));
          }
    }
  }

  // x + other, but other - x in the lanes of the upper halves.
  static __m512 butterfly(__m512 x, __m512 other, __mmask16 upper) {
    return _mm512_mask_sub_ps(_mm512_add_ps(x, other), upper, other, x);
  }

  // Sums of high and of low bytes fill up to 24 registers.
  static constexpr int wide(int rows) { return rows <= 3 ? 4 : rows <= 6 ? 2 : 1; }

  static void store_bytes(__m512i x, void* out) {
    _mm_storeu_si128(static_cast<__m128i*>(out), _mm512_cvtepi32_epi8(x));
  }

  static __m512i four(const void* p) {
    int32_t bytes;
    memcpy(&bytes, p, 4);
    return _mm512_set1_epi32(bytes);
  }

  static __m512i both(__m512i high, __m512i low) {
    return _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
  }

  template <int kRows, int kWide>
  static void score_pieces(Pieces pieces, int dim, const Queries& queries, float* scores) {
    __m512i high[kRows][kWide], low[kRows][kWide];
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++) high[r][w] = low[r][w] = _mm512_setzero_si512();
    for (int d = 0; d < dim; d += 4) {
      __m512i k[kWide];
      for (int w = 0; w < kWide; w++) {
        k[w] = keep(_mm512_load_si512(pieces[w] + kScales + d * 16));
        _mm_prefetch(pieces[w + kAhead] + kScales + d * 16, _MM_HINT_T1);
      }
      for (int r = 0; r < kRows; r++) {
        const __m512i q_high = four(queries.high[r] + d), q_low = four(queries.low[r] + d);
        for (int w = 0; w < kWide; w++) {
          high[r][w] = keep(_mm512_dpbusd_epi32(high[r][w], k[w], q_high));
          low[r][w] = keep(_mm512_dpbusd_epi32(low[r][w], k[w], q_low));
        }
      }
    }
    for (int w = 0; w < kWide; w++) {
      const __m512 k_scales = _mm512_load_ps(pieces[w]);
      for (int r = 0; r < kRows; r++) {
        const __m512i sum =
            _mm512_sub_epi32(both(high[r][w], low[r][w]), _mm512_set1_epi32(queries.offsets[r]));
        const __m512 scale = _mm512_mul_ps(k_scales, _mm512_set1_ps(queries.scales[r]));
        _mm512_store_ps(scores + r * kScoreStride + w * kPiece,
                        _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale));
      }
    }
  }

  template <int kRows, int kWide>
  static void accumulate_dims(Pieces pieces, int count, int padded_dim, int first,
                              const Weights& weights, int32_t* sums) {
    __m512i high[kRows][kWide], low[kRows][kWide];
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++) high[r][w] = low[r][w] = _mm512_setzero_si512();
    for (int i = 0; i < count; i++) {
      const uint8_t* values = pieces[i] + kScales + first * 4;
      const uint8_t* ahead = pieces[i + kAhead] + kScales + first * 4;
      for (int t = 0; t < kPiece; t += 4, values += padded_dim * 4, ahead += padded_dim * 4) {
        __m512i v[kWide];
        for (int w = 0; w < kWide; w++) {
          v[w] = keep(_mm512_load_si512(values + w * 64));
          _mm_prefetch(ahead + w * 64, _MM_HINT_T1);
        }
        for (int r = 0; r < kRows; r++) {
          const __m512i p_high = four(weights.high[r] + i * kPiece + t);
          const __m512i p_low = four(weights.low[r] + i * kPiece + t);
          for (int w = 0; w < kWide; w++) {
            high[r][w] = keep(_mm512_dpbusd_epi32(high[r][w], p_high, v[w]));
            low[r][w] = keep(_mm512_dpbusd_epi32(low[r][w], p_low, v[w]));
          }
        }
      }
    }
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++)
        _mm512_store_si512(sums + r * padded_dim + first + w * 16, both(high[r][w], low[r][w]));
  }
};

}  // namespace
}  // namespace octavo
