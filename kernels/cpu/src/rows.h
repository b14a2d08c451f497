// Operations on single rows of float32: what happens between the matrix products.
//
// Rows have room for a multiple of kColUnit floats, and what lies beyond a row's length is zero, so
// that kernels need no tails. A row's result depends on that row alone.
#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace octavo {

constexpr int kAdaptedRows = 4;  // rows of one adapter that read its matrices together

struct RowKernels {
  // out = x / sqrt(Σ x² / length + eps) · scale, over `padded` floats; out may be x.
  void (*rms_norm)(const float* x, const float* scale, float eps, int64_t length, int64_t padded,
                   float* out);
  // Turns each kColUnit columns by the Walsh-Hadamard transform (matrix.h); out may be x.
  void (*rotate)(const float* x, int64_t padded, float* out);
  // Rounds to nearest, ties to even.
  void (*to_bfloat16)(const float* x, int64_t padded, BFloat16* out);
  // x ≈ scale · q with scale = max |x| / 127 for each `group` floats, q rounded to nearest;
  // `scales` and `sums` as in Rows. Where a value is not finite, its scale is NaN, so that no fault
  // is lost.
  void (*quantize)(const float* x, int64_t padded, int64_t group, int8_t* q, float* scales,
                   int32_t* sums);
  // out = act(gate) · up, over kBlockRows floats each.
  void (*silu_mul)(const float* gate, const float* up, float* out);
  void (*gelu_tanh_mul)(const float* gate, const float* up, float* out);
  // x = cap · tanh(x / cap), over `padded` floats.
  void (*softcap)(float* x, int64_t padded, float cap);
  // Turns the pairs (x[i], x[i + half]) of one head by the angles of cos and sin [half].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half);
  // x += y, over `padded` floats.
  void (*add)(float* x, const float* y, int64_t padded);
  // For up to kAdaptedRows rows m (low_rank.h): out[m][j] = Σ x[m][k] · a[j, k] for j in [0, rank).
  // a: [rank, padded].
  void (*shrink)(const float* const* x, int num_rows, const BFloat16* a, int64_t padded,
                 int64_t rank, float* const* out);
  // out[m][n] += Σ t[m][j] · b[j, n], summed over j first, for n in [0, kBlockRows).
  // b: [rank, kBlockRows].
  void (*expand)(const float* const* t, int num_rows, const BFloat16* b, int64_t rank,
                 float* const* out);
};

extern const RowKernels kPortableRows;
extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;
const RowKernels& row_kernels(int isa);  // OctavoIsa

}  // namespace octavo
