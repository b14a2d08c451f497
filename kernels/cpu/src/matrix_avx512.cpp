// Compiled for AVX-512 F, BW, DQ, VL and VNNI.
#include "matrix_avx512.h"
#include "matrix_avx512_groups.h"

namespace octavo {
namespace {

// Two of VDPBF16PS's products, rounded after each: the product of two bfloat16 is exact in float32.
struct WideningDot {
  static __m512 add(__m512 acc, __m512i w, __m512i x) {
    acc = _mm512_fmadd_ps(odd(w), odd(x), acc);
    return _mm512_fmadd_ps(even(w), even(x), acc);
  }
  static __m512 odd(__m512i pair) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static __m512 even(__m512i pair) { return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)); }
};

struct Int8Tile {
  static constexpr int kMaxRows = 12;

  template <int kRows>
  static void run(const Tile& t) {
    const int64_t cols = t.w.cols;
    const int64_t num_sums = cols / kSumCols;
    __m512i acc[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; r++)
      acc[r][0] = acc[r][1] =
          _mm512_set1_epi32(-128 * total(t.a.sums + (t.row + r) * num_sums, num_sums));
    RowBytes<kRows> a(t.a.int8 + t.row * cols, cols);
    const uint8_t* w = t.block + kBlockRows * sizeof(float);
    Prefetcher<(kRows >= kDensePrefetchRows)> ahead(t);
    dot_steps<Int8Dot, kRows>(w, a, cols / 4, ahead, acc);

    const float* scales = reinterpret_cast<const float*>(t.block);
    const __m512 scale[2] = {_mm512_loadu_ps(scales), _mm512_loadu_ps(scales + 16)};
    __m512 y[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; r++) {
      y[r][0] = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][0]), scale[0]);
      y[r][1] = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][1]), scale[1]);
    }
    store_tile<kRows>(t, y, t.a.scales + t.row);
  }

  static int32_t total(const int32_t* sums, int64_t count) {
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < count; i += 16) {
      const int64_t left = count - i;
      const __mmask16 mask = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
      sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(mask, sums + i));
    }
    return _mm512_reduce_add_epi32(sum);
  }
};

void multiply(const PackedMatrix& w, int64_t block, const Rows& a, int64_t first_row,
              int64_t num_rows, float* out, int64_t out_stride, bool add) {
  const auto run = [&](auto kernel) {
    run_tiles<decltype(kernel)>(w, block, a, first_row, num_rows, out, out_stride, add);
  };
  switch (w.format) {
  case kFormatBFloat16:
    return run(BFloat16Tile<WideningDot, 6>());
  case kFormatInt8:
    return run(Int8Tile());
  case kFormatGroup8:
    return run(GroupTile<Group8>());
  case kFormatGroup4:
    return run(GroupTile<Group4>());
  case kFormatGroup4Min:
    return run(GroupTile<Group4Min>());
  }
}

void read_row(const PackedMatrix& w, int64_t row, int64_t num_cols, float* out) {
  kPortableMatrix.read_row(w, row, num_cols, out);
}

}  // namespace

const MatrixKernels kAvx512Matrix{multiply, read_row};

}  // namespace octavo
