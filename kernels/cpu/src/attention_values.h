// Weighted sums of values, dimensions in the vector lanes, tokens added in order.
#pragma once

#include "attention.h"
#include "bfloat16.h"

namespace octavo {

// sums[r, 0 .. kCount * kLanes) += Σ_t weights[r, t] · values[t, ...] over `tokens` tokens.
//   values: [tokens, stride]; weights: [kRowCount, kScoreStride]; sums: [kRowCount, sum_stride]
template <class V, int kRowCount, int kCount, class T>
static inline void accumulate_tile(const T* values, int stride, int tokens, const float* weights,
                                   float* sums, int sum_stride) {
  typename V::F sum[kRowCount][kCount];
  for (int r = 0; r < kRowCount; r++)
    for (int v = 0; v < kCount; v++) sum[r][v] = V::load(sums + r * sum_stride + v * V::kLanes);
  for (int t = 0; t < tokens; t++) {
    typename V::F value[kCount];
    for (int v = 0; v < kCount; v++) value[v] = V::load(values + t * stride + v * V::kLanes);
    for (int r = 0; r < kRowCount; r++) {
      const typename V::F w = V::set1(weights[r * kScoreStride + t]);
      for (int v = 0; v < kCount; v++) sum[r][v] = V::fma(w, value[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRowCount; r++)
    for (int v = 0; v < kCount; v++) V::store(sums + r * sum_stride + v * V::kLanes, sum[r][v]);
}

// The same over all of `dim` dimensions, a multiple of kLanes.
template <class V, int kRowCount, class T>
static inline void accumulate(const T* values, int stride, int dim, int tokens,
                              const float* weights, float* sums, int sum_stride) {
  int d = 0;
  for (; d + V::kVectors * V::kLanes <= dim; d += V::kVectors * V::kLanes)
    accumulate_tile<V, kRowCount, V::kVectors>(values + d, stride, tokens, weights, sums + d,
                                               sum_stride);
  for (; d < dim; d += V::kLanes)
    accumulate_tile<V, kRowCount, 1>(values + d, stride, tokens, weights, sums + d, sum_stride);
}

}  // namespace octavo
