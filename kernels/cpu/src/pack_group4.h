// The search for scales of 4-bit weights: by far the longest part of packing, so it is compiled for
// each instruction set. It has no fused or reordered arithmetic; every set gives the same bytes.
#pragma once

#include "pack_block.h"

namespace octavo {

// Packs the tile of a block into kFormatGroup4.
using PackGroup4 = void (*)(const float* tile, int64_t cols, int group, uint8_t* out);

extern const PackGroup4 kPortablePackGroup4;
extern const PackGroup4 kAvx2PackGroup4;
extern const PackGroup4 kAvx512PackGroup4;

// For one try of the inverse scale: Σ w·q and Σ q² over a group, q = round(w · inverse).
static inline void correlate(const float* tile, int group, const RowValues& inverse,
                             RowValues& products, RowValues& squares) {
  constexpr int kRows = 16;  // whose sums stay in registers
  for (int first = 0; first < kBlockRows; first += kRows) {
    float product[kRows] = {}, square[kRows] = {};
    for (int c = 0; c < group; c++)
      for (int r = 0; r < kRows; r++) {
        const float w = tile[c * kBlockRows + first + r];
        const float q = clamp(round_even(w * inverse.v[first + r]), -8.0f, 7.0f);
        product[r] += w * q;
        square[r] += q * q;
      }
    memcpy(products.v + first, product, sizeof product);
    memcpy(squares.v + first, square, sizeof square);
  }
}

// Scales of a group of 4-bit weights. With the codes q fixed, the scale of least squared error is
// Σ w·q / Σ q², and what it leaves of Σ w² is least where (Σ w·q)² / Σ q² is greatest. The codes
// tried are those that put the largest weight at -7.1 to -8.9 (and so, by the sign of the scale,
// use the whole range from -8 to 7 on the side where it is needed).
static inline void search_scale(const float* tile, int group, RowValues& scale) {
  constexpr int kTries = 9;  // to each side of -8, by tenths
  RowValues largest{}, best{};
  for (int c = 0; c < group; c++)
    for (int r = 0; r < kBlockRows; r++) {
      const float w = tile[c * kBlockRows + r];
      largest.v[r] = magnitude(w) > magnitude(largest.v[r]) ? w : largest.v[r];
    }
  for (int r = 0; r < kBlockRows; r++) {
    scale.v[r] = 0.0f;
    largest.v[r] = inverse_or_zero(largest.v[r]);
  }
  for (int i = -kTries; i <= kTries; i++) {
    RowValues inverse, products, squares;
    const float anchor = -(8.0f + 0.1f * static_cast<float>(i));
    for (int r = 0; r < kBlockRows; r++) inverse.v[r] = anchor * largest.v[r];
    correlate(tile, group, inverse, products, squares);
    for (int r = 0; r < kBlockRows; r++) {
      const float fitted = products.v[r] * inverse_or_zero(squares.v[r]);
      const float gain = products.v[r] * fitted;
      const bool better = gain > best.v[r];
      best.v[r] = better ? gain : best.v[r];
      scale.v[r] = better ? fitted : scale.v[r];
    }
  }
}

// out[c / 8][row][c % 4], columns 8i + j in the low halves, 8i + 4 + j in the high ones.
static inline void write_codes4(const float* tile, int group, const RowValues& scale,
                                uint8_t* out) {
  RowValues inverse;
  for (int r = 0; r < kBlockRows; r++) inverse.v[r] = inverse_or_zero(scale.v[r]);
  for (int c = 0; c < group; c += 8, out += kBlockRows * 4) {
    uint32_t words[kBlockRows] = {};
    for (int j = 0; j < 8; j++)
      for (int r = 0; r < kBlockRows; r++) {
        const float q = round_even(tile[(c + j) * kBlockRows + r] * inverse.v[r]);
        const auto code = static_cast<int32_t>(clamp(q, -8.0f, 7.0f)) + 8;
        words[r] |= static_cast<uint32_t>(code) << (j < 4 ? 8 * j : 8 * (j - 4) + 4);
      }
    memcpy(out, words, sizeof words);
  }
}

static inline void pack_group4(const float* tile, int64_t cols, int group, uint8_t* out) {
  for (int64_t c = 0; c < cols; c += group) {
    RowValues scale;
    search_scale(tile + c * kBlockRows, group, scale);
    store_scales(scale, out);
    out += kBlockRows * sizeof(Float16);
    write_codes4(tile + c * kBlockRows, group, scale, out);
    out += group * kBlockRows / 2;
  }
}

}  // namespace octavo
