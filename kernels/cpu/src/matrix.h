// Weight matrices as the kernels stream them, and the rows that they are multiplied with.
//
// A matrix [rows, cols] is cut into blocks of kBlockRows rows. A block is one piece of memory,
// aligned to 64 bytes, that a kernel reads from front to back:
//
//   bfloat16   [cols/2][32][2] bfloat16
//   int8       scale float32 [32] · [cols/4][32][4] uint8              Hw = scale · (u - 128)
//   group8     per group: scale float16 [32] · [group/4][32][4] uint8   w = scale · (u - 128)
//   group4     per group: scale float16 [32] · [group/8][32][4] uint8   w = scale · (u - 8)
//   group4min  per group: scale, min float16 [32] each · as group4      w = scale · u + min
//
// A byte of group4 holds two weights of a row: the low half is column 8·i + j, the high half column
// 8·i + 4 + j (i in [0, group/8), j in [0, 4)). `cols` is padded to a multiple of kColUnit with
// weights that count as zero against rows that are zero there.
//
// Rows of int8 are turned: H is the Walsh-Hadamard transform of each 64 columns with factor 1/8.
// It leaves products as they are if activations are turned likewise, x·w = Hx·Hw, and spreads the
// few large values that activations have, which one scale for a row would pay for with the rest
// (QuaRot, arXiv:2404.00456). Without it int8 costs SmolLM2 4 % in perplexity, with it under 1 %.
//
// A row of activations for the integer formats is a = scale · q, q in [-127, 127], with one scale
// for the whole row (int8) or one for each group, as the weights have it: these cannot be turned.
// Then, for example, y = scale_w · scale_a · (Σ u·q - 128 · Σ q): the sum is one of integers, exact
// whatever its order. Groups are summed in order, in float32, by
// fused multiply-add, and bfloat16 products in the order of VDPBF16PS (pairs of columns, even one
// last) where there is that instruction. So an element of the result depends on its two operands
// alone: neither on the number of rows nor on which thread computes it.
#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace octavo {

constexpr int kBlockRows = 32;
constexpr int kColUnit = 64;
constexpr int kSumCols = 32;  // columns per entry of Rows::sums

enum MatrixFormat : int32_t {
  kFormatBFloat16 = 0,
  kFormatInt8 = 1,
  kFormatGroup8 = 2,
  kFormatGroup4 = 3,
  kFormatGroup4Min = 4,
};

constexpr bool is_integer(MatrixFormat format) {
  return format != kFormatBFloat16;
}

struct PackedMatrix {
  const uint8_t* data;  // [num_blocks] blocks
  const float* bias;    // [num_blocks * kBlockRows] or null
  int64_t block_bytes;
  int32_t num_blocks;
  int32_t cols;   // padded
  int32_t group;  // 32 or 64 for the group formats, else 0
  MatrixFormat format;

  const uint8_t* block(int64_t i) const { return data + i * block_bytes; }
};

// Bytes of one block; a multiple of 64.
constexpr int64_t block_bytes(MatrixFormat format, int64_t cols, int64_t group) {
  switch (format) {
  case kFormatBFloat16:
    return cols * kBlockRows * 2;
  case kFormatInt8:
    return kBlockRows * 4 + cols * kBlockRows;
  case kFormatGroup8:
    return cols / group * (kBlockRows * 2 + group * kBlockRows);
  case kFormatGroup4:
    return cols / group * (kBlockRows * 2 + group * kBlockRows / 2);
  case kFormatGroup4Min:
    return cols / group * (kBlockRows * 4 + group * kBlockRows / 2);
  }
  return 0;
}

// Rows of activations, for one of the two kinds of format. `cols` is that of the matrix, and what
// lies beyond a row's own length is zero.
struct Rows {
  const BFloat16* bf16;  // [num_rows, cols]
  const int8_t* int8;    // [num_rows, cols]
  const float* scales;   // [num_rows], or [num_rows, cols / group] for the group formats
  const int32_t* sums;   // [num_rows, cols / kSumCols]: of int8 values
  int32_t cols;
};

// Kernels of one instruction set.
struct MatrixKernels {
  // out[m, n] (+)= Σ_k a[first_row + m, k] · w[block * 32 + n, k] (+ bias) for m in [0, num_rows),
  // n in [0, 32). num_rows is any number from 1 on; out_stride counts floats.
  void (*multiply)(const PackedMatrix& w, int64_t block, const Rows& a, int64_t first_row,
                   int64_t num_rows, float* out, int64_t out_stride, bool add);
  // out[k] = w[row, k] for k in [0, num_cols): one row of a matrix (an embedding).
  void (*read_row)(const PackedMatrix& w, int64_t row, int64_t num_cols, float* out);
};

extern const MatrixKernels kPortableMatrix;
extern const MatrixKernels kAvx2Matrix;
extern const MatrixKernels kAvx512Matrix;      // F, BW, DQ, VL and VNNI; bfloat16 by way of float32
extern const MatrixKernels kAvx512Bf16Matrix;  // and BF16
const MatrixKernels& matrix_kernels(int isa);  // OctavoIsa

}  // namespace octavo
