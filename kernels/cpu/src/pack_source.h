// Rows of a weight as its file has them, 32 columns at a time: a "piece" is one block of Q4_0,
// Q4_1, Q5_0 and Q8_0, one eighth of a block of Q4_K, and 32 values of a dense row. The layouts are
// ggml's (ggml-common.h):
//
//   Q4_0   scale f16 · 16 bytes, column i in the low half of byte i, 16 + i in the high half
//   Q4_1   scale f16 · min f16 · as Q4_0
//   Q5_0   scale f16 · fifth bits u32 · as Q4_0
//   Q8_0   scale f16 · 32 int8
//   Q4_K   scale, min f16 · 8 pairs of 6-bit factors for them (12 bytes) · 128 bytes, of which 32
//          hold pieces 2i in their low halves and 2i + 1 in their high halves
#pragma once

#include <cstdint>
#include <cstring>

#include "abi.h"
#include "bfloat16.h"
#include "float16.h"

namespace octavo {

constexpr int kPieceCols = 32;

// A quantised piece: w = scale · (code - zero) where the scheme is symmetric, else scale · code +
// min.
struct CodedPiece {
  uint8_t codes[kPieceCols];
  float scale;
  float min;
};

// What a code of a symmetric scheme stands at for zero; -1 for schemes with a min, and dense ones.
constexpr int zero_code(int scheme) {
  return scheme == OCTAVO_Q4_0 ? 8 : scheme == OCTAVO_Q5_0 ? 16 : scheme == OCTAVO_Q8_0 ? 128 : -1;
}

constexpr bool is_dense(int scheme) {
  return scheme == OCTAVO_F32 || scheme == OCTAVO_F16 || scheme == OCTAVO_BF16;
}

// Columns of the scheme's own block.
constexpr int64_t unit_cols(int scheme) {
  return is_dense(scheme) ? 1 : scheme == OCTAVO_Q4_K ? 256 : 32;
}

// Bytes of the scheme's own block; 0 for a scheme that is none.
constexpr int64_t unit_bytes(int scheme) {
  switch (scheme) {
  case OCTAVO_F32:
    return 4;
  case OCTAVO_F16:
  case OCTAVO_BF16:
    return 2;
  case OCTAVO_Q4_0:
    return 18;
  case OCTAVO_Q4_1:
    return 20;
  case OCTAVO_Q5_0:
    return 22;
  case OCTAVO_Q8_0:
    return 34;
  case OCTAVO_Q4_K:
    return 144;
  }
  return 0;
}

static inline float load_half(const uint8_t* p) {
  Float16 half;
  memcpy(&half, p, sizeof half);
  return to_float(half);
}

static inline void split_halves(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; i++) {
    codes[i] = bytes[i] & 15;
    codes[16 + i] = bytes[i] >> 4;
  }
}

static inline void read_q4_k(const uint8_t* unit, int piece, CodedPiece& out) {
  const uint8_t* factors = unit + 4;
  int scale, min;
  if (piece < 4) {
    scale = factors[piece] & 63;
    min = factors[piece + 4] & 63;
  } else {
    scale = (factors[piece + 4] & 15) | (factors[piece - 4] >> 6) << 4;
    min = factors[piece + 4] >> 4 | (factors[piece] >> 6) << 4;
  }
  out.scale = load_half(unit) * static_cast<float>(scale);
  out.min = -(load_half(unit + 2) * static_cast<float>(min));
  const uint8_t* bytes = unit + 16 + piece / 2 * 32;
  const int shift = piece % 2 * 4;
  for (int i = 0; i < kPieceCols; i++) out.codes[i] = bytes[i] >> shift & 15;
}

// Piece `piece` of a row of a quantised scheme.
static inline void read_codes(int scheme, const uint8_t* row, int64_t piece, CodedPiece& out) {
  const int64_t pieces = unit_cols(scheme) / kPieceCols;
  const uint8_t* unit = row + piece / pieces * unit_bytes(scheme);
  if (scheme == OCTAVO_Q4_K) {
    read_q4_k(unit, static_cast<int>(piece % pieces), out);
    return;
  }
  out.scale = load_half(unit);
  out.min = scheme == OCTAVO_Q4_1 ? load_half(unit + 2) : 0.0f;
  if (scheme == OCTAVO_Q8_0) {
    for (int i = 0; i < kPieceCols; i++) out.codes[i] = unit[2 + i] ^ 128;
    return;
  }
  split_halves(unit + (scheme == OCTAVO_Q4_0 ? 2 : scheme == OCTAVO_Q4_1 ? 4 : 6), out.codes);
  if (scheme == OCTAVO_Q5_0) {
    uint32_t fifth;
    memcpy(&fifth, unit + 2, sizeof fifth);
    for (int i = 0; i < kPieceCols; i++) out.codes[i] |= (fifth >> i & 1) << 4;
  }
}

// Columns [32 * piece, 32 * piece + count) of a row of any scheme; count is 32 unless it is dense.
static inline void read_values(int scheme, const uint8_t* row, int64_t piece, int64_t count,
                               float* out) {
  if (is_dense(scheme)) {
    const uint8_t* from = row + piece * kPieceCols * unit_bytes(scheme);
    if (scheme == OCTAVO_F32) {
      memcpy(out, from, count * sizeof(float));
      return;
    }
    uint16_t bits[kPieceCols];
    memcpy(bits, from, count * sizeof bits[0]);
    if (scheme == OCTAVO_F16)
      for (int64_t i = 0; i < count; i++) out[i] = to_float(Float16{bits[i]});
    else
      for (int64_t i = 0; i < count; i++) out[i] = to_float(BFloat16{bits[i]});
    return;
  }
  CodedPiece coded;
  read_codes(scheme, row, piece, coded);
  const int zero = zero_code(scheme);
  if (zero >= 0)
    for (int i = 0; i < kPieceCols; i++) out[i] = coded.scale * (coded.codes[i] - zero);
  else
    for (int i = 0; i < kPieceCols; i++) out[i] = coded.scale * coded.codes[i] + coded.min;
}

}  // namespace octavo
