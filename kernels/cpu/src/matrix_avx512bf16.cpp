// Compiled for AVX-512 with VNNI and BF16.
#include "matrix_avx512.h"

namespace octavo {
namespace {

struct BFloat16Dot {
  static __m512 add(__m512 acc, __m512i w, __m512i x) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
  }
};

void multiply(const PackedMatrix& w, int64_t block, const Rows& a, int64_t first_row,
              int64_t num_rows, float* out, int64_t out_stride, bool add) {
  if (w.format == kFormatBFloat16)
    run_tiles<BFloat16Tile<BFloat16Dot, 12>>(w, block, a, first_row, num_rows, out, out_stride,
                                             add);
  else
    kAvx512Matrix.multiply(w, block, a, first_row, num_rows, out, out_stride, add);
}

void read_row(const PackedMatrix& w, int64_t row, int64_t num_cols, float* out) {
  kPortableMatrix.read_row(w, row, num_cols, out);
}

}  // namespace

const MatrixKernels kAvx512Bf16Matrix{multiply, read_row};

}  // namespace octavo
