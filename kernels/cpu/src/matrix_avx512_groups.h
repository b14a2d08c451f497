// Tiles of the formats with a scale per group of columns, for AVX-512: an exact integer sum per
// group, then one fused multiply-add of it into a float32 sum, group after group.
#pragma once

#include "matrix_avx512.h"

namespace octavo {
namespace {

// Of each: kShift, log2 of what counts as zero among the stored weights (or 0: nothing does), kMin,
// whether a minimum follows the scales, kPrefetchRows, the fewest rows of a lone tile that
// prefetches, and dot(), which adds a group's products to acc.
struct Group8 {
  static constexpr int kShift = 7;
  static constexpr int kPrefetchRows = 5;
  static constexpr bool kMin = false;

  template <int kRows, class Ahead>
  static void dot(const uint8_t*& w, RowBytes<kRows>& a, int64_t group, Ahead& ahead,
                  __m512i (&acc)[kRows][2]) {
    dot_steps<Int8Dot, kRows>(w, a, group / 4, ahead, acc);
  }
};

struct Group4 {
  static constexpr int kShift = 3;
  static constexpr int kPrefetchRows = 3;
  static constexpr bool kMin = false;

  template <int kRows, class Ahead>
  static void dot(const uint8_t*& w, RowBytes<kRows>& a, int64_t group, Ahead& ahead,
                  __m512i (&acc)[kRows][2]) {
    constexpr int kUnroll = 4;
    const __m512i low_half = _mm512_set1_epi8(0x0f);
    for (int64_t k = 0; k < group / 8; k += kUnroll) {
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; u++) {
        const __m512i p0 = load(w + u * 128), p1 = load(w + u * 128 + 64);
        ahead.step(w + u * 128);
        const __m512i low0 = _mm512_and_si512(p0, low_half);
        const __m512i low1 = _mm512_and_si512(p1, low_half);
        const __m512i high0 = _mm512_and_si512(_mm512_srli_epi16(p0, 4), low_half);
        const __m512i high1 = _mm512_and_si512(_mm512_srli_epi16(p1, 4), low_half);
#pragma GCC unroll 6
        for (int r = 0; r < kRows; r++) {
          const __m512i x_low = a.broadcast(r, u * 8), x_high = a.broadcast(r, u * 8 + 4);
          acc[r][0] = Int8Dot::add(acc[r][0], low0, x_low);
          acc[r][1] = Int8Dot::add(acc[r][1], low1, x_low);
          acc[r][0] = Int8Dot::add(acc[r][0], high0, x_high);
          acc[r][1] = Int8Dot::add(acc[r][1], high1, x_high);
        }
      }
      w += kUnroll * 128;
      a.advance(kUnroll * 8);
    }
  }
};

struct Group4Min : Group4 {
  static constexpr int kShift = 0;
  static constexpr bool kMin = true;
};

static inline __m512 load_float16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

template <class Format>
struct GroupTile {
  static constexpr int kMaxRows = 6;

  template <int kRows>
  static void run(const Tile& t) {
    if (t.num_tiles > 1)
      compute<kRows, true>(t);
    else
      compute<kRows, (kRows >= Format::kPrefetchRows)>(t);
  }

  template <int kRows, bool kPrefetch>
  static void compute(const Tile& t) {
    constexpr int64_t kHeaderBytes = kBlockRows * (Format::kMin ? 4 : 2);
    const int64_t cols = t.w.cols, group = t.w.group;
    const int64_t num_sums = cols / kSumCols, sums_per_group = group / kSumCols;
    const int64_t num_groups = cols / group;
    const int32_t* sums = t.a.sums + t.row * num_sums;
    const float* row_scales = t.a.scales + t.row * num_groups;
    RowBytes<kRows> a(t.a.int8 + t.row * cols, cols);
    const uint8_t* w = t.block;
    Prefetcher<kPrefetch> ahead(t);
    __m512 y[kRows][2];
    for (auto& row : y) row[0] = row[1] = _mm512_setzero_ps();

    for (int64_t g = 0; g < num_groups; g++, sums += sums_per_group) {
      const __m512 scale[2] = {load_float16(w), load_float16(w + 32)};
      __m512 min[2];
      if (Format::kMin) {
        min[0] = load_float16(w + 64);
        min[1] = load_float16(w + 96);
      }
      w += kHeaderBytes;
      ahead.skip(kHeaderBytes);
      __m512i acc[kRows][2];
#pragma GCC unroll 6
      for (int r = 0; r < kRows; r++) {
        __m512i sum = _mm512_set1_epi32(sums[r * num_sums]);
        if (sums_per_group == 2)
          sum = _mm512_add_epi32(sum, _mm512_set1_epi32(sums[r * num_sums + 1]));
        const __m512i zero = _mm512_setzero_si512();
        if (Format::kMin) {
          const __m512 row_sum = _mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                                               _mm512_set1_ps(row_scales[r * num_groups + g]));
          y[r][0] = _mm512_fmadd_ps(min[0], row_sum, y[r][0]);
          y[r][1] = _mm512_fmadd_ps(min[1], row_sum, y[r][1]);
          acc[r][0] = acc[r][1] = zero;
        } else {
          acc[r][0] = acc[r][1] = _mm512_sub_epi32(zero, _mm512_slli_epi32(sum, Format::kShift));
        }
      }
      Format::template dot<kRows>(w, a, group, ahead, acc);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; r++) {
        const __m512 row_scale = _mm512_set1_ps(row_scales[r * num_groups + g]);
        y[r][0] = _mm512_fmadd_ps(_mm512_mul_ps(scale[0], row_scale), _mm512_cvtepi32_ps(acc[r][0]),
                                  y[r][0]);
        y[r][1] = _mm512_fmadd_ps(_mm512_mul_ps(scale[1], row_scale), _mm512_cvtepi32_ps(acc[r][1]),
                                  y[r][1]);
      }
    }
    store_tile<kRows>(t, y, nullptr);
  }
};

}  // namespace
}  // namespace octavo
