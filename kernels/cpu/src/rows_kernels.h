// RowKernels over the vectors of vec_*.h. Included once by each instruction set's translation unit.
#pragma once

#include <cmath>
#include <cstring>

#include "matrix.h"
#include "rows.h"
#include "vec_math.h"

namespace octavo {

template <class V>
static void rms_norm(const float* x, const float* scale, float eps, int64_t length, int64_t padded,
                     float* out) {
  using F = typename V::F;
  static_assert(kColUnit % (4 * V::kLanes) == 0, "rows are whole groups of four vectors");
  F sum[4] = {V::set1(0.0f), V::set1(0.0f), V::set1(0.0f), V::set1(0.0f)};
  for (int64_t i = 0; i < padded; i += 4 * V::kLanes)
    for (int j = 0; j < 4; j++) {
      const F value = V::load(x + i + j * V::kLanes);
      sum[j] = V::fma(value, value, sum[j]);
    }
  const float square = reduce_add<V>(V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3])));
  const F factor = V::set1(1.0f / std::sqrt(square / static_cast<float>(length) + eps));
  for (int64_t i = 0; i < padded; i += V::kLanes)
    V::store(out + i, V::mul(V::mul(V::load(x + i), factor), V::load(scale + i)));
}

template <class V>
static void rotate(const float* x, int64_t padded, float* out) {
  constexpr int kCount = kColUnit / V::kLanes;
  const auto factor = V::set1(0.125f);  // 64^-1/2: the transform is then its own inverse
  static_assert(kColUnit == 64, "the factor is for it");
  for (int64_t c = 0; c < padded; c += kColUnit) {
    typename V::F v[kCount];
    for (int i = 0; i < kCount; i++) v[i] = V::hadamard(V::load(x + c + i * V::kLanes));
    for (int half = 1; half < kCount; half *= 2)
      for (int i = 0; i < kCount; i++)
        if ((i & half) == 0) {
          const auto a = v[i], b = v[i + half];
          v[i] = V::add(a, b);
          v[i + half] = V::sub(a, b);
        }
    for (int i = 0; i < kCount; i++) V::store(out + c + i * V::kLanes, V::mul(v[i], factor));
  }
}

static void to_bfloat16(const float* x, int64_t padded, BFloat16* out) {
  for (int64_t i = 0; i < padded; i++) store_as(x[i], out + i);
}

// One group; returns its scale.
template <class V>
static inline float quantize_group(const float* x, int64_t count, int8_t* q, int32_t* sums) {
  using F = typename V::F;
  F largest = V::set1(0.0f), faults = V::set1(0.0f);
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const F value = V::load(x + i);
    largest = V::max(V::abs(value), largest);
    faults = V::fma(value, V::set1(0.0f), faults);
  }
  const float max = reduce_max<V>(largest);
  const float inverse = max > 0.0f ? 127.0f / max : 0.0f;
  // Adding 1.5 · 2^23 leaves the nearest integer in the low bits.
  constexpr float kShift = 12582912.0f;
  constexpr int32_t kShiftBits = 0x4b400000;
  for (int64_t i = 0; i < count; i += kSumCols) {
    int32_t sum = 0;
    for (int64_t j = i; j < i + kSumCols; j++) {
      const float shifted = x[j] * inverse + kShift;
      int32_t bits;
      memcpy(&bits, &shifted, sizeof bits);
      const auto value = static_cast<int8_t>(bits - kShiftBits);
      q[j] = value;
      sum += value;
    }
    sums[i / kSumCols] = sum;
  }
  return max / 127.0f + reduce_add<V>(faults);
}

template <class V>
static void quantize(const float* x, int64_t padded, int64_t group, int8_t* q, float* scales,
                     int32_t* sums) {
  for (int64_t c = 0; c < padded; c += group)
    *scales++ = quantize_group<V>(x + c, group, q + c, sums + c / kSumCols);
}

template <class V>
static void silu_mul(const float* gate, const float* up, float* out) {
  using F = typename V::F;
  for (int i = 0; i < kBlockRows; i += V::kLanes) {
    const F g = V::load(gate + i);
    const F power = exp2<V>(V::min(V::set1(126.0f), V::mul(g, V::set1(-1.44269504f))));
    V::store(out + i, V::mul(V::div(g, V::add(V::set1(1.0f), power)), V::load(up + i)));
  }
}

// 0.5 · g · (1 + tanh(sqrt(2/π) · (g + 0.044715 · g³)))
template <class V>
static void gelu_tanh_mul(const float* gate, const float* up, float* out) {
  using F = typename V::F;
  for (int i = 0; i < kBlockRows; i += V::kLanes) {
    const F g = V::load(gate + i);
    const F cubic = V::fma(V::mul(V::mul(g, g), g), V::set1(0.044715f), g);
    const F t = tanh<V>(V::mul(cubic, V::set1(0.797884561f)));
    const F act = V::mul(V::mul(V::set1(0.5f), g), V::add(V::set1(1.0f), t));
    V::store(out + i, V::mul(act, V::load(up + i)));
  }
}

template <class V>
static void softcap(float* x, int64_t padded, float cap) {
  const auto factor = V::set1(cap), inverse = V::set1(1.0f / cap);
  for (int64_t i = 0; i < padded; i += V::kLanes)
    V::store(x + i, V::mul(factor, tanh<V>(V::mul(V::load(x + i), inverse))));
}

// Written out in vectors, since a compiler cannot know that the halves do not overlap.
template <class V>
static void rope(float* x, const float* cos, const float* sin, int64_t half) {
  int64_t i = 0;
  for (; i + V::kLanes <= half; i += V::kLanes) {
    const auto a = V::load(x + i), b = V::load(x + i + half);
    const auto c = V::load(cos + i), s = V::load(sin + i);
    V::store(x + i, V::sub(V::mul(a, c), V::mul(b, s)));
    V::store(x + i + half, V::add(V::mul(b, c), V::mul(a, s)));
  }
  for (; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

static void add(float* x, const float* y, int64_t padded) {
  for (int64_t i = 0; i < padded; i++) x[i] += y[i];
}

// Some rows by some ranks at once: each vector of x and of `a` is loaded once, and all sums are
// independent. What a sum is of, and in which order, does not depend on how many there are.
template <class V, int kRows, int kRanks>
static inline void shrink_tile(const float* const* x, const BFloat16* a, int64_t padded,
                               int64_t first, float* const* out) {
  typename V::F sum[kRows][kRanks];
  for (auto& of_row : sum)
    for (auto& each : of_row) each = V::set1(0.0f);
  for (int64_t k = 0; k < padded; k += V::kLanes) {
    typename V::F value[kRows];
    for (int m = 0; m < kRows; m++) value[m] = V::load(x[m] + k);
    for (int j = 0; j < kRanks; j++) {
      const auto weight = V::load(a + (first + j) * padded + k);
      for (int m = 0; m < kRows; m++) sum[m][j] = V::fma(value[m], weight, sum[m][j]);
    }
  }
  for (int m = 0; m < kRows; m++)
    for (int j = 0; j < kRanks; j++) out[m][first + j] = reduce_add<V>(sum[m][j]);
}

template <class V, int kRows, int kRanks>
static void shrink_rows(const float* const* x, const BFloat16* a, int64_t padded, int64_t rank,
                        float* const* out) {
  int64_t j = 0;
  for (; j + kRanks <= rank; j += kRanks) shrink_tile<V, kRows, kRanks>(x, a, padded, j, out);
  for (; j < rank; j++) shrink_tile<V, kRows, 1>(x, a, padded, j, out);
}

template <class V>
static void shrink(const float* const* x, int num_rows, const BFloat16* a, int64_t padded,
                   int64_t rank, float* const* out) {
  static_assert(kAdaptedRows == 4, "there are as many cases");
  switch (num_rows) {
  case 4:
    return shrink_rows<V, 4, 4>(x, a, padded, rank, out);
  case 3:
    return shrink_rows<V, 3, 4>(x, a, padded, rank, out);
  case 2:
    return shrink_rows<V, 2, 4>(x, a, padded, rank, out);
  case 1:
    return shrink_rows<V, 1, 8>(x, a, padded, rank, out);
  }
}

template <class V, int kRows>
static void expand_rows(const float* const* t, const BFloat16* b, int64_t rank, float* const* out) {
  constexpr int kCount = kBlockRows / V::kLanes;
  typename V::F sum[kRows][kCount];
  for (auto& of_row : sum)
    for (auto& each : of_row) each = V::set1(0.0f);
  for (int64_t j = 0; j < rank; j++) {
    typename V::F weight[kCount];
    for (int i = 0; i < kCount; i++) weight[i] = V::load(b + j * kBlockRows + i * V::kLanes);
    for (int m = 0; m < kRows; m++) {
      const auto factor = V::set1(t[m][j]);
      for (int i = 0; i < kCount; i++) sum[m][i] = V::fma(factor, weight[i], sum[m][i]);
    }
  }
  for (int m = 0; m < kRows; m++)
    for (int i = 0; i < kCount; i++) {
      float* at = out[m] + i * V::kLanes;
      V::store(at, V::add(V::load(at), sum[m][i]));
    }
}

template <class V>
static void expand(const float* const* t, int num_rows, const BFloat16* b, int64_t rank,
                   float* const* out) {
  switch (num_rows) {
  case 4:
    return expand_rows<V, 4>(t, b, rank, out);
  case 3:
    return expand_rows<V, 3>(t, b, rank, out);
  case 2:
    return expand_rows<V, 2>(t, b, rank, out);
  case 1:
    return expand_rows<V, 1>(t, b, rank, out);
  }
}

template <class V>
constexpr RowKernels row_kernels_of() {
  return {rms_norm<V>, rotate<V>, to_bfloat16, quantize<V>, silu_mul<V>, gelu_tanh_mul<V>,
          softcap<V>,  rope<V>,   add,         shrink<V>,   expand<V>};
}

}  // namespace octavo
