// Compiled for AVX2, FMA and F16C. Right and fair rather than tuned: few CPUs that serve have no
// more.
#include <immintrin.h>

#include <cstring>

#include "matrix_tiles.h"

namespace octavo {
namespace {

constexpr int kVectors = kBlockRows / 8;

__m256i load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

__m256i broadcast(const void* p) {
  int32_t quad;
  memcpy(&quad, p, sizeof quad);
  return _mm256_set1_epi32(quad);
}

__m256 load_float16(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Four columns of eight outputs with one byte a weight. VPMADDUBSW would add two products of up to
// 255 x 127 in 16 bits and saturate, so even and odd bytes are widened and go through VPMADDWD.
struct Bytes {
  static constexpr int kCols = 4;
  __m256i even, odd;

  explicit Bytes(const uint8_t* w) {
    even = _mm256_and_si256(load(w), _mm256_set1_epi16(0x00ff));
    odd = _mm256_srli_epi16(load(w), 8);
  }
  __m256i add(__m256i acc, const int8_t* q) const {
    const __m256i x = broadcast(q);
    const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(even, x_even));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(odd, _mm256_srai_epi16(x, 8)));
  }
};

// Eight columns of eight outputs with half a byte a weight. Four products of at most 15 x 127 fit
// 16 bits, so that VPMADDUBSW is safe.
struct HalfBytes {
  static constexpr int kCols = 8;
  __m256i low, high;

  explicit HalfBytes(const uint8_t* w) {
    const __m256i low_half = _mm256_set1_epi8(0x0f);
    low = _mm256_and_si256(load(w), low_half);
    high = _mm256_and_si256(_mm256_srli_epi16(load(w), 4), low_half);
  }
  __m256i add(__m256i acc, const int8_t* q) const {
    const __m256i sums = _mm256_add_epi16(_mm256_maddubs_epi16(low, broadcast(q)),
                                          _mm256_maddubs_epi16(high, broadcast(q + 4)));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
  }
};

// acc[r][v] += Σ u · q over `count` columns
template <class Weights, int kRows>
void dot(const uint8_t* w, const int8_t* q, int64_t stride, int64_t count,
         __m256i (&acc)[kRows][kVectors]) {
  for (int64_t k = 0; k < count; k += Weights::kCols, w += 128, q += Weights::kCols)
    for (int v = 0; v < kVectors; v++) {
      const Weights weights(w + v * 32);
      for (int r = 0; r < kRows; r++) acc[r][v] = weights.add(acc[r][v], q + r * stride);
    }
}

template <int kRows>
void store_tile(const Tile& t, const __m256 (&y)[kRows][kVectors], const float* row_scales) {
  for (int r = 0; r < kRows; r++)
    for (int v = 0; v < kVectors; v++) {
      float* out = t.out + r * t.out_stride + v * 8;
      __m256 value = y[r][v];
      if (row_scales != nullptr) value = _mm256_mul_ps(value, _mm256_set1_ps(row_scales[r]));
      if (t.bias != nullptr) value = _mm256_add_ps(value, _mm256_loadu_ps(t.bias + v * 8));
      if (t.add) value = _mm256_add_ps(_mm256_loadu_ps(out), value);
      _mm256_storeu_ps(out, value);
    }
}

// The two products of a pair in the order of VDPBF16PS, the odd one first.
struct BFloat16Tile {
  static constexpr int kMaxRows = 2;

  template <int kRows>
  static void run(const Tile& t) {
    const int64_t cols = t.w.cols;
    const BFloat16* a = t.a.bf16 + t.row * cols;
    __m256 acc[kRows][kVectors];
    for (auto& row : acc)
      for (__m256& sum : row) sum = _mm256_setzero_ps();
    for (int64_t k = 0; k < cols; k += 2)
      for (int v = 0; v < kVectors; v++) {
        const __m256i w = load(t.block + k * 64 + v * 32);
        for (int r = 0; r < kRows; r++) {
          const __m256i x = broadcast(a + r * cols + k);
          acc[r][v] = _mm256_fmadd_ps(odd(w), odd(x), acc[r][v]);
          acc[r][v] = _mm256_fmadd_ps(even(w), even(x), acc[r][v]);
        }
      }
    store_tile<kRows>(t, acc, nullptr);
  }
  static __m256 odd(__m256i pair) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static __m256 even(__m256i pair) { return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)); }
};

template <int kRows>
void set_all(__m256i (&acc)[kRows][kVectors], int r, int32_t value) {
  for (__m256i& sum : acc[r]) sum = _mm256_set1_epi32(value);
}

int32_t total(const int32_t* sums, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; i++) sum += sums[i];
  return sum;
}

struct Int8Tile {
  static constexpr int kMaxRows = 2;

  template <int kRows>
  static void run(const Tile& t) {
    const int64_t cols = t.w.cols, num_sums = cols / kSumCols;
    __m256i acc[kRows][kVectors];
    for (int r = 0; r < kRows; r++)
      set_all(acc, r, -128 * total(t.a.sums + (t.row + r) * num_sums, num_sums));
    dot<Bytes, kRows>(t.block + kBlockRows * sizeof(float), t.a.int8 + t.row * cols, cols, cols,
                      acc);
    const float* scales = reinterpret_cast<const float*>(t.block);
    __m256 y[kRows][kVectors];
    for (int r = 0; r < kRows; r++)
      for (int v = 0; v < kVectors; v++)
        y[r][v] = _mm256_mul_ps(_mm256_cvtepi32_ps(acc[r][v]), _mm256_loadu_ps(scales + v * 8));
    store_tile<kRows>(t, y, t.a.scales + t.row);
  }
};

// kZero counts as zero among the stored weights.
template <class Weights, int kZero, bool kMin>
struct GroupTile {
  static constexpr int kMaxRows = 2;

  template <int kRows>
  static void run(const Tile& t) {
    const int64_t cols = t.w.cols, group = t.w.group;
    const int64_t num_sums = cols / kSumCols, sums_per_group = group / kSumCols;
    const int8_t* q = t.a.int8 + t.row * cols;
    const int32_t* sums = t.a.sums + t.row * num_sums;
    const int64_t num_groups = cols / group;
    const float* row_scales = t.a.scales + t.row * num_groups;
    const uint8_t* w = t.block;
    __m256 y[kRows][kVectors];
    for (auto& row : y)
      for (__m256& sum : row) sum = _mm256_setzero_ps();
    for (int64_t g = 0; g < num_groups; g++, q += group, sums += sums_per_group) {
      const uint8_t* scales = w;
      w += kBlockRows * 2;
      __m256i acc[kRows][kVectors];
      for (int r = 0; r < kRows; r++) {
        const int32_t sum = total(sums + r * num_sums, sums_per_group);
        set_all(acc, r, -kZero * sum);
        if (kMin) add_mins(w, static_cast<float>(sum) * row_scales[r * num_groups + g], y[r]);
      }
      if (kMin) w += kBlockRows * 2;
      dot<Weights, kRows>(w, q, cols, group, acc);
      w += group / Weights::kCols * 128;
      for (int r = 0; r < kRows; r++)
        add_scaled(scales, row_scales[r * num_groups + g], acc[r], y[r]);
    }
    store_tile<kRows>(t, y, nullptr);
  }

  static void add_mins(const uint8_t* mins, float row_sum, __m256 (&y)[kVectors]) {
    for (int v = 0; v < kVectors; v++)
      y[v] = _mm256_fmadd_ps(load_float16(mins + v * 16), _mm256_set1_ps(row_sum), y[v]);
  }
  static void add_scaled(const uint8_t* scales, float row_scale, const __m256i (&sums)[kVectors],
                         __m256 (&y)[kVectors]) {
    for (int v = 0; v < kVectors; v++) {
      const __m256 scale = _mm256_mul_ps(load_float16(scales + v * 16), _mm256_set1_ps(row_scale));
      y[v] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[v]), y[v]);
    }
  }
};

void multiply(const PackedMatrix& w, int64_t block, const Rows& a, int64_t first_row,
              int64_t num_rows, float* out, int64_t out_stride, bool add) {
  const auto run = [&](auto kernel) {
    run_tiles<decltype(kernel)>(w, block, a, first_row, num_rows, out, out_stride, add);
  };
  switch (w.format) {
  case kFormatBFloat16:
    return run(BFloat16Tile());
  case kFormatInt8:
    return run(Int8Tile());
  case kFormatGroup8:
    return run(GroupTile<Bytes, 128, false>());
  case kFormatGroup4:
    return run(GroupTile<HalfBytes, 8, false>());
  case kFormatGroup4Min:
    return run(GroupTile<HalfBytes, 0, true>());
  }
}

void read_row(const PackedMatrix& w, int64_t row, int64_t num_cols, float* out) {
  kPortableMatrix.read_row(w, row, num_cols, out);
}

}  // namespace

const MatrixKernels kAvx2Matrix{multiply, read_row};

}  // namespace octavo
