// Compiled for AVX-512 with VNNI and BF16.
#include "matrix_avx512.h"

namespace octavo {
namespace {

struct BFloat16Dot {
  static __m512 add(__m512 acc, __m512i w, __m512i x) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
  }
};

struct BFloat16Tile {
  static constexpr int kMaxRows = 12;

  template <int kRows>
  static void run(const Tile& t) {
    const int64_t cols = t.w.cols;
    __m512 acc[kRows][2];
    for (auto& row : acc) row[0] = row[1] = _mm512_setzero_ps();
    RowBytes<kRows> a(t.a.bf16 + t.row * cols, cols * int64_t{sizeof(BFloat16)});
    const uint8_t* w = t.block;
    Prefetcher<(kRows >= kDensePrefetchRows)> ahead(t);
    dot_steps<BFloat16Dot, kRows>(w, a, cols / 2, ahead, acc);
    store_tile<kRows>(t, acc, nullptr);
  }
};

void multiply(const PackedMatrix& w, int64_t block, const Rows& a, int64_t first_row,
              int64_t num_rows, float* out, int64_t out_stride, bool add) {
  if (w.format == kFormatBFloat16)
    run_tiles<BFloat16Tile>(w, block, a, first_row, num_rows, out, out_stride, add);
  else
    kAvx512Matrix.multiply(w, block, a, first_row, num_rows, out, out_stride, add);
}

void read_row(const PackedMatrix& w, int64_t row, int64_t num_cols, float* out) {
  kPortableMatrix.read_row(w, row, num_cols, out);
}

}  // namespace

const MatrixKernels kAvx512Bf16Matrix{multiply, read_row};

}  // namespace octavo
