// Plain loops over the packed layouts: what the other variants are tested against, and what runs
// where none of them does.
#include <algorithm>
#include <cmath>

#include "float16.h"
#include "matrix.h"

namespace octavo {
namespace {

// Where a group format keeps the things of a group.
struct Group {
  const uint8_t* scales;
  const uint8_t* mins;  // null: none
  const uint8_t* weights;

  Group(const PackedMatrix& w, const uint8_t* block, int64_t index) {
    const bool half_bytes = w.format != kFormatGroup8, has_min = w.format == kFormatGroup4Min;
    const int64_t header = kBlockRows * (has_min ? 4 : 2);
    const int64_t bytes = header + kBlockRows * int64_t{w.group} / (half_bytes ? 2 : 1);
    scales = block + index * bytes;
    mins = has_min ? scales + kBlockRows * 2 : nullptr;
    weights = scales + header;
  }
};

float float16_at(const uint8_t* values, int64_t i) {
  Float16 value;
  memcpy(&value, values + i * 2, sizeof value);
  return to_float(value);
}

// What is stored for the weight of row n at column k of a dense int8 block or of a group.
template <bool kHalfBytes>
int32_t stored(const uint8_t* weights, int64_t n, int64_t k) {
  if (!kHalfBytes) return weights[k / 4 * 128 + n * 4 + k % 4];
  const uint8_t pair = weights[k / 8 * 128 + n * 4 + k % 4];
  return k % 8 < 4 ? pair & 15 : pair >> 4;
}

// sums[n] += Σ u · q over four columns, of which a block holds the bytes of a row side by side.
void add_quads(const uint8_t* quads, const int8_t* q, int shift, int mask,
               int32_t (&sums)[kBlockRows]) {
  const int q0 = q[0], q1 = q[1], q2 = q[2], q3 = q[3];
  for (int n = 0; n < kBlockRows; n++) {
    const uint8_t* u = quads + n * 4;
    sums[n] += (u[0] >> shift & mask) * q0 + (u[1] >> shift & mask) * q1 +
               (u[2] >> shift & mask) * q2 + (u[3] >> shift & mask) * q3;
  }
}

// dots[n] = Σ (u - zero) · q over `count` columns.
template <bool kHalfBytes>
void dot(const uint8_t* weights, const int8_t* q, int64_t count, int32_t zero,
         int32_t (&dots)[kBlockRows]) {
  int32_t sum = 0;
  for (int64_t k = 0; k < count; k++) sum += q[k];
  for (int32_t& dot : dots) dot = -zero * sum;
  for (int64_t k = 0; k < count; k += kHalfBytes ? 8 : 4, weights += kBlockRows * 4) {
    add_quads(weights, q + k, 0, kHalfBytes ? 15 : 255, dots);
    if (kHalfBytes) add_quads(weights, q + k + 4, 4, 15, dots);
  }
}

void multiply_bfloat16(const PackedMatrix& w, const uint8_t* block, const BFloat16* a,
                       float (&y)[kBlockRows]) {
  const BFloat16* weights = reinterpret_cast<const BFloat16*>(block);
  for (float& sum : y) sum = 0.0f;
  for (int64_t k = 0; k < w.cols; k += 2, weights += kBlockRows * 2) {
    const float even = to_float(a[k]), odd = to_float(a[k + 1]);
    for (int n = 0; n < kBlockRows; n++) {
      y[n] += to_float(weights[n * 2 + 1]) * odd;  // an exact product: no need to fuse it
      y[n] += to_float(weights[n * 2]) * even;
    }
  }
}

void multiply_int8(const PackedMatrix& w, const uint8_t* block, const int8_t* q,
                   float (&y)[kBlockRows]) {
  const float* scales = reinterpret_cast<const float*>(block);
  int32_t dots[kBlockRows];
  dot<false>(block + kBlockRows * sizeof(float), q, w.cols, 128, dots);
  for (int n = 0; n < kBlockRows; n++) y[n] = static_cast<float>(dots[n]) * scales[n];
}

void multiply_groups(const PackedMatrix& w, const uint8_t* block, const int8_t* q,
                     const int32_t* sums, const float* row_scales, float (&y)[kBlockRows]) {
  for (float& sum : y) sum = 0.0f;
  for (int64_t g = 0; g < w.cols / w.group; g++, q += w.group) {
    const Group group(w, block, g);
    int32_t dots[kBlockRows];
    if (w.format == kFormatGroup8)
      dot<false>(group.weights, q, w.group, 128, dots);
    else
      dot<true>(group.weights, q, w.group, w.format == kFormatGroup4 ? 8 : 0, dots);
    if (group.mins != nullptr) {
      int32_t sum = 0;
      for (int i = 0; i < w.group / kSumCols; i++) sum += *sums++;
      for (int n = 0; n < kBlockRows; n++)
        y[n] = std::fma(float16_at(group.mins, n), static_cast<float>(sum) * row_scales[g], y[n]);
    }
    for (int n = 0; n < kBlockRows; n++)
      y[n] =
          std::fma(float16_at(group.scales, n) * row_scales[g], static_cast<float>(dots[n]), y[n]);
  }
}

void multiply(const PackedMatrix& w, int64_t block, const Rows& a, int64_t first_row,
              int64_t num_rows, float* out, int64_t out_stride, bool add) {
  const uint8_t* data = w.block(block);
  const float* bias = w.bias == nullptr ? nullptr : w.bias + block * kBlockRows;
  for (int64_t row = first_row; row < first_row + num_rows; row++, out += out_stride) {
    float y[kBlockRows];
    if (w.format == kFormatBFloat16)
      multiply_bfloat16(w, data, a.bf16 + row * w.cols, y);
    else if (w.format == kFormatInt8)
      multiply_int8(w, data, a.int8 + row * w.cols, y);
    else
      multiply_groups(w, data, a.int8 + row * w.cols, a.sums + row * (w.cols / kSumCols),
                      a.scales + row * (w.cols / w.group), y);
    const float scale = w.format == kFormatInt8 ? a.scales[row] : 1.0f;
    for (int n = 0; n < kBlockRows; n++) {
      float value = y[n] * scale;
      if (bias != nullptr) value += bias[n];
      out[n] = add ? out[n] + value : value;
    }
  }
}

// Row n of a group.
void read_group(MatrixFormat format, const Group& group, int64_t n, int64_t count, float* out) {
  const float scale = float16_at(group.scales, n);
  if (format == kFormatGroup8) {
    for (int64_t i = 0; i < count; i++)
      out[i] = scale * static_cast<float>(stored<false>(group.weights, n, i) - 128);
  } else if (format == kFormatGroup4) {
    for (int64_t i = 0; i < count; i++)
      out[i] = scale * static_cast<float>(stored<true>(group.weights, n, i) - 8);
  } else {
    const float min = float16_at(group.mins, n);
    for (int64_t i = 0; i < count; i++)
      out[i] = std::fma(scale, static_cast<float>(stored<true>(group.weights, n, i)), min);
  }
}

void read_row(const PackedMatrix& w, int64_t row, int64_t num_cols, float* out) {
  const uint8_t* block = w.block(row / kBlockRows);
  const int64_t n = row % kBlockRows;
  if (w.format == kFormatBFloat16) {
    const BFloat16* weights = reinterpret_cast<const BFloat16*>(block);
    for (int64_t k = 0; k < num_cols; k++)
      out[k] = to_float(weights[k / 2 * kBlockRows * 2 + n * 2 + k % 2]);
  } else if (w.format == kFormatInt8) {
    const float scale = reinterpret_cast<const float*>(block)[n];
    const uint8_t* weights = block + kBlockRows * sizeof(float);
    for (int64_t k = 0; k < num_cols; k++)
      out[k] = scale * static_cast<float>(stored<false>(weights, n, k) - 128);
  } else {
    for (int64_t g = 0; g * w.group < num_cols; g++) {
      const Group group(w, block, g);
      const int64_t count = std::min<int64_t>(w.group, num_cols - g * w.group);
      read_group(w.format, group, n, count, out + g * w.group);
    }
  }
}

}  // namespace

const MatrixKernels kPortableMatrix{multiply, read_row};

}  // namespace octavo
