// Tiles of the dense formats (bfloat16, int8) for AVX-512: `kRows` x 32 outputs in registers.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "matrix_tiles.h"

namespace octavo {
namespace {

// Makes x a register from here on. Left to itself, GCC reads weights from memory again for each
// product, more often than a core can, and copies or spills sums at the end of a loop.
static inline __m512i keep(__m512i x) {
  asm("" : "+v"(x));
  return x;
}

static inline __m512i load(const uint8_t* p) {
  return keep(_mm512_loadu_si512(p));
}

// Rows of activations as bytes. Only each third row has a pointer of its own and the two after it
// are reached by way of the stride: twelve pointers would not fit the registers.
template <int kRows>
class RowBytes {
public:
  RowBytes(const void* first, int64_t stride) : stride_(stride) {
    for (int i = 0; i < kPointers; i++)
      pointers_[i] = static_cast<const char*>(first) + 3 * i * stride;
  }
  // Four bytes of row r, `offset` bytes ahead, for every lane.
  __m512i broadcast(int r, int64_t offset) const {
    int32_t quad;
    memcpy(&quad, pointers_[r / 3] + r % 3 * stride_ + offset, sizeof quad);
    return keep(_mm512_set1_epi32(quad));
  }
  void advance(int64_t bytes) {
    for (const char*& pointer : pointers_) pointer += bytes;
  }

private:
  static constexpr int kPointers = (kRows + 2) / 3;
  const char* pointers_[kPointers];
  int64_t stride_;
};

// What a tile prefetches, if kOn: weights from memory into the second-level cache where
// Tile::prefetch says, and from there into the first-level cache shortly before they are read. The
// numbers are the best of those measured on Zen 4, whose own prefetchers do better alone where a
// lone tile has little arithmetic.
template <bool kOn>
class Prefetcher {
public:
  explicit Prefetcher(const Tile& t) : ahead_(t.prefetch), step_(t.prefetch_step) {}
  // For the two cache lines at w.
  void step(const uint8_t* w) {
    if (!kOn) return;
    _mm_prefetch(reinterpret_cast<const char*>(w + kNearBytes), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(w + kNearBytes + 64), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(ahead_), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(ahead_ + 64), _MM_HINT_T1);
    ahead_ += step_;
  }
  // For `bytes`, at most two cache lines, that a group begins with.
  void skip(int64_t bytes) {
    if (!kOn) return;
    _mm_prefetch(reinterpret_cast<const char*>(ahead_), _MM_HINT_T1);
    ahead_ += bytes * step_ / 128;
  }

private:
  static constexpr int64_t kNearBytes = 2048;
  const uint8_t* ahead_;
  int64_t step_;
};

// A lone tile of fewer rows leaves prefetching to the hardware. Of several tiles none has fewer.
constexpr int kDensePrefetchRows = 6;

// Adds to acc[r][v] the dot products of rows with 32 outputs over `steps` steps, in order.
// Dot::add(acc, weights, activations) is one instruction: four int8 or two bfloat16 products.
template <class Dot, int kRows, class Ahead, class Acc>
inline void dot_steps(const uint8_t*& w, RowBytes<kRows>& a, int64_t steps, Ahead& ahead,
                      Acc (&acc)[kRows][2]) {
  constexpr int kUnroll = 4;
  for (int64_t k = 0; k < steps; k += kUnroll) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; u++) {
      const __m512i w0 = load(w + u * 128), w1 = load(w + u * 128 + 64);
      ahead.step(w + u * 128);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; r++) {
        const __m512i x = a.broadcast(r, u * 4);
        acc[r][0] = Dot::add(acc[r][0], w0, x);
        acc[r][1] = Dot::add(acc[r][1], w1, x);
      }
    }
    w += kUnroll * 128;
    a.advance(kUnroll * 4);
  }
}

struct Int8Dot {
  static __m512i add(__m512i acc, __m512i w, __m512i x) {
    return keep(_mm512_dpbusd_epi32(acc, w, x));
  }
};

// out[r] (+)= acc[r] * scale of row r (+ bias)
template <int kRows>
inline void store_tile(const Tile& t, const __m512 (&acc)[kRows][2], const float* row_scales) {
#pragma GCC unroll 12
  for (int r = 0; r < kRows; r++) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
      float* out = t.out + r * t.out_stride + v * 16;
      __m512 y = acc[r][v];
      if (row_scales != nullptr) y = _mm512_mul_ps(y, _mm512_set1_ps(row_scales[r]));
      if (t.bias != nullptr) y = _mm512_add_ps(y, _mm512_loadu_ps(t.bias + v * 16));
      if (t.add) y = _mm512_add_ps(_mm512_loadu_ps(out), y);
      _mm512_storeu_ps(out, y);
    }
  }
}

// Rows of bfloat16 through Dot, two products a step.
template <class Dot, int kMostRows>
struct BFloat16Tile {
  static constexpr int kMaxRows = kMostRows;

  template <int kRows>
  static void run(const Tile& t) {
    const int64_t cols = t.w.cols;
    __m512 acc[kRows][2];
    for (auto& row : acc) row[0] = row[1] = _mm512_setzero_ps();
    RowBytes<kRows> a(t.a.bf16 + t.row * cols, cols * int64_t{sizeof(BFloat16)});
    const uint8_t* w = t.block;
    Prefetcher<(kRows >= kDensePrefetchRows)> ahead(t);
    dot_steps<Dot, kRows>(w, a, cols / 2, ahead, acc);
    store_tile<kRows>(t, acc, nullptr);
  }
};

}  // namespace
}  // namespace octavo
