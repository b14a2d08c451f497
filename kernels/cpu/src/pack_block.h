// Quantisation of one block of 32 rows. All arithmetic runs across the rows of a block:
//
//   tile  [cols][32] float32     column c of all rows, so that loops over rows become vectors
//
// and each row's own sums are made in the order of its columns. So a weight's packed bytes are the
// same on every CPU. kernels/reference/quantization.py defines the values.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "float16.h"
#include "matrix.h"

namespace octavo {

constexpr float kMaxHalf = 65504.0f;

// A value for each of 32 rows.
struct RowValues {
  float v[kBlockRows];
};

// The largest magnitude that the format can hold.
static inline float largest_weight(MatrixFormat format) {
  switch (format) {
  case kFormatBFloat16:
    return 0x1.fefffep127f;  // beyond it rounding gives infinity
  case kFormatInt8:
    return 0x1p121f;  // 64 of them may add up
  case kFormatGroup8:
    return kMaxHalf * 127.0f;
  case kFormatGroup4:
    return kMaxHalf * 7.0f;
  default:
    return 0x1.fffffep127f;
  }
}

// To the nearest integer, ties to even, for |x| < 2^22.
static inline float round_even(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 · 2^23
  return (x + kMagic) - kMagic;
}

static inline float clamp(float x, float low, float high) {
  x = x > low ? x : low;
  return x < high ? x : high;
}

static inline float magnitude(float x) {
  return std::fabs(x);
}

static inline float inverse_or_zero(float x) {
  return x != 0.0f ? 1.0f / x : 0.0f;
}

static inline void find_largest(const float* tile, int64_t cols, RowValues& largest) {
  for (int r = 0; r < kBlockRows; r++) largest.v[r] = 0.0f;
  for (int64_t c = 0; c < cols; c++)
    for (int r = 0; r < kBlockRows; r++) {
      const float m = magnitude(tile[c * kBlockRows + r]);
      largest.v[r] = m > largest.v[r] ? m : largest.v[r];
    }
}

// out[c / 4][row][c % 4] = round(w / scale) + 128
static inline void write_codes8(const float* tile, int64_t cols, const RowValues& scale,
                                uint8_t* out) {
  RowValues inverse;
  for (int r = 0; r < kBlockRows; r++) inverse.v[r] = inverse_or_zero(scale.v[r]);
  for (int64_t c = 0; c < cols; c += 4, out += kBlockRows * 4) {
    uint32_t words[kBlockRows] = {};
    for (int j = 0; j < 4; j++)
      for (int r = 0; r < kBlockRows; r++) {
        const float q = round_even(tile[(c + j) * kBlockRows + r] * inverse.v[r]);
        const auto code = static_cast<int32_t>(clamp(q, -127.0f, 127.0f)) + 128;
        words[r] |= static_cast<uint32_t>(code) << (8 * j);
      }
    memcpy(out, words, sizeof words);
  }
}

static inline void pack_bfloat16(const float* tile, int64_t cols, uint8_t* out) {
  for (int64_t c = 0; c < cols; c += 2, out += kBlockRows * 4) {
    BFloat16 pairs[kBlockRows][2];
    for (int r = 0; r < kBlockRows; r++) {
      store_as(tile[c * kBlockRows + r], &pairs[r][0]);
      store_as(tile[(c + 1) * kBlockRows + r], &pairs[r][1]);
    }
    memcpy(out, pairs, sizeof pairs);
  }
}

// Turns the columns of a tile (matrix.h). They are taken in pairs 1, 2, 4, … 32 apart.
static inline void rotate(float* tile, int64_t cols) {
  for (int64_t first = 0; first < cols; first += kColUnit)
    for (int half = 1; half < kColUnit; half *= 2)
      for (int c = 0; c < kColUnit; c++) {
        if ((c & half) != 0) continue;
        float* a = tile + (first + c) * kBlockRows;
        float* b = a + half * kBlockRows;
        for (int r = 0; r < kBlockRows; r++) {
          const float sum = a[r] + b[r], difference = a[r] - b[r];
          a[r] = sum;
          b[r] = difference;
        }
      }
  for (int64_t i = 0; i < cols * kBlockRows; i++) tile[i] *= 0.125f;
}

static inline void pack_int8(const float* tile, int64_t cols, uint8_t* out) {
  RowValues scale;
  find_largest(tile, cols, scale);
  for (int r = 0; r < kBlockRows; r++) scale.v[r] /= 127.0f;
  memcpy(out, scale.v, sizeof scale.v);
  write_codes8(tile, cols, scale, out + sizeof scale.v);
}

// Rounds scales to float16, as stored at `out`, and returns them as rounded.
static inline void store_scales(RowValues& scale, uint8_t* out) {
  Float16 halves[kBlockRows];
  for (int r = 0; r < kBlockRows; r++) {
    store_as(scale.v[r], &halves[r]);
    scale.v[r] = to_float(halves[r]);
  }
  memcpy(out, halves, sizeof halves);
}

static inline void pack_group8(const float* tile, int64_t cols, int group, uint8_t* out) {
  for (int64_t c = 0; c < cols; c += group) {
    RowValues scale;
    find_largest(tile + c * kBlockRows, group, scale);
    for (int r = 0; r < kBlockRows; r++) scale.v[r] /= 127.0f;
    store_scales(scale, out);
    out += kBlockRows * sizeof(Float16);
    write_codes8(tile + c * kBlockRows, group, scale, out);
    out += group * kBlockRows;
  }
}

}  // namespace octavo
