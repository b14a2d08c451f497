// Products of a bfloat16 cache by VDPBF16PS: queries and weights are rounded to bfloat16, sums are
// float32. A pair is two neighbouring dimensions of K, or two neighbouring tokens of V, by their
// absolute place.
#pragma once

#include "attention_avx512_common.h"

namespace octavo {
namespace {

struct Bf16Dot {
  using Vec = Avx512;
  using Sum = float;
  static constexpr int kTile = 12;
  static constexpr bool kHideUnusedValues = true;
  static constexpr int kQueryStride = kMaxHeadDim + 32;
  static constexpr int kWeightStride = kSplit + 32;

  struct Queries {
    alignas(64) uint16_t rows[kTile][kQueryStride];
  };
  struct Weights {
    alignas(64) uint16_t rows[kTile][kWeightStride];
  };

  static void load_query(const float* query, int dim, float factor, int row, Queries& queries) {
    const __m512 f = _mm512_set1_ps(factor);
    for (int d = 0; d < dim; d += 16) {
      const __mmask16 mask = dim - d < 16 ? 0xff : 0xffff;
      const __m512 q = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, query + d), f);
      store(queries.rows[row] + d, q);
    }
  }

  // scores[r][t] for the tokens of `count` pieces.
  template <int kRows>
  static void score(Pieces pieces, int count, int dim, const Queries& queries, float* scores) {
    constexpr int kWide = kRows <= 6 ? 4 : 2;
    int i = 0;
    for (; i + kWide <= count; i += kWide)
      score_pieces<kRows, kWide>(pieces + i, dim, queries, scores + i * kPiece);
    for (; i < count; i++) score_pieces<kRows, 1>(pieces + i, dim, queries, scores + i * kPiece);
  }

  // Turns scores into weights relative to 2^shift and returns their sum.
  static float weigh(const float* scores, float shift, Pieces, int count, int row,
                     Weights& weights) {
    const __m512 s = _mm512_set1_ps(shift);
    __m512 total = _mm512_setzero_ps();
    for (int t = 0; t < count * kPiece; t += 16) {
      const __m512 weight = exp2_for_rounding(_mm512_sub_ps(_mm512_load_ps(scores + t), s));
      total = _mm512_add_ps(total, weight);
      store(weights.rows[row] + t, weight);
    }
    return _mm512_reduce_add_ps(total);
  }

  template <int kRows>
  static void accumulate(Pieces pieces, int count, int padded_dim, const Weights& weights,
                         float* sums) {
    constexpr int kWide = kRows <= 6 ? 4 : 2;
    int d = 0;
    for (; d + kWide * 16 <= padded_dim; d += kWide * 16)
      accumulate_dims<kRows, kWide>(pieces, count, padded_dim, d, weights, sums);
    for (; d < padded_dim; d += 16)
      accumulate_dims<kRows, 1>(pieces, count, padded_dim, d, weights, sums);
  }

  static __m512 sum(const float* sums, const Weights&, int) { return _mm512_load_ps(sums); }

private:
  static void store(uint16_t* out, __m512 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), (__m256i)_mm512_cvtneps_pbh(x));
  }

  static __m512bh pair(const uint16_t* p) {
    int32_t both;
    memcpy(&both, p, 4);
    return (__m512bh)_mm512_set1_epi32(both);
  }

  template <int kRows, int kWide>
  static void score_pieces(Pieces pieces, int dim, const Queries& queries, float* scores) {
    __m512 sum[kRows][kWide];
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++) sum[r][w] = _mm512_setzero_ps();
    for (int d = 0; d < dim; d += 2) {
      __m512bh k[kWide];
      for (int w = 0; w < kWide; w++) {
        k[w] = (__m512bh)keep(_mm512_load_si512(pieces[w] + d * 32));
        _mm_prefetch(pieces[w + kAhead] + d * 32, _MM_HINT_T1);
      }
      for (int r = 0; r < kRows; r++) {
        const __m512bh q = pair(queries.rows[r] + d);
        for (int w = 0; w < kWide; w++) sum[r][w] = _mm512_dpbf16_ps(sum[r][w], k[w], q);
      }
    }
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++)
        _mm512_store_ps(scores + r * kScoreStride + w * kPiece, sum[r][w]);
  }

  template <int kRows, int kWide>
  static void accumulate_dims(Pieces pieces, int count, int padded_dim, int first,
                              const Weights& weights, float* sums) {
    __m512 sum[kRows][kWide];
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++) sum[r][w] = _mm512_setzero_ps();
    for (int i = 0; i < count; i++) {
      const uint8_t* values = pieces[i] + first * 4;
      const uint8_t* ahead = pieces[i + kAhead] + first * 4;
      for (int t = 0; t < kPiece; t += 2, values += padded_dim * 4, ahead += padded_dim * 4) {
        __m512bh v[kWide];
        for (int w = 0; w < kWide; w++) {
          v[w] = (__m512bh)keep(_mm512_load_si512(values + w * 64));
          _mm_prefetch(ahead + w * 64, _MM_HINT_T1);
        }
        for (int r = 0; r < kRows; r++) {
          const __m512bh weight = pair(weights.rows[r] + i * kPiece + t);
          for (int w = 0; w < kWide; w++) sum[r][w] = _mm512_dpbf16_ps(sum[r][w], v[w], weight);
        }
      }
    }
    for (int r = 0; r < kRows; r++)
      for (int w = 0; w < kWide; w++)
        _mm512_store_ps(sums + r * padded_dim + first + w * 16, sum[r][w]);
  }
};

}  // namespace
}  // namespace octavo
