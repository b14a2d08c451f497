// q·k for up to kRows query vectors against a run of keys, tokens in the vector lanes: each lane
// sums over the head's dimensions in order, whichever of the two ways below is taken.
#pragma once

#include "attention.h"
#include "bfloat16.h"

namespace octavo {

// Calls use(d, k) for each dimension d in order, with k holding dimension d of kLanes keys that lie
// `dim` elements apart. A piece of 16 bytes per key is transposed at a time: 4 float32 or 8
// bfloat16, the latter as pairs in 32 bits.
template <class V, class Use>
static inline void for_each_dimension(const float* keys, int dim, Use use) {
  for (int d = 0; d < dim; d += 4) {
    typename V::F k[4];
    for (int i = 0; i < 4; i++)
      k[i] = V::load_quads(keys + int64_t{i} * dim + d, int64_t{4} * dim * sizeof(float));
    V::transpose_quads(k);
    for (int i = 0; i < 4; i++) use(d + i, k[i]);
  }
}

template <class V, class Use>
static inline void for_each_dimension(const BFloat16* keys, int dim, Use use) {
  for (int d = 0; d < dim; d += 8) {
    typename V::F k[4];
    for (int i = 0; i < 4; i++)
      k[i] = V::load_quads(keys + int64_t{i} * dim + d, int64_t{4} * dim * sizeof(BFloat16));
    V::transpose_quads(k);
    for (int i = 0; i < 4; i++) {
      use(d + 2 * i, V::low_bfloat16(k[i]));
      use(d + 2 * i + 1, V::high_bfloat16(k[i]));
    }
  }
}

// Few query vectors (decoding): keys go through registers once and are never stored.
//   queries: [dim, query_stride]; scores: [kRowCount, kScoreStride], kLanes written in each row
template <class V, int kRowCount, class T>
static inline void score_streaming(const T* keys, int dim, const float* queries, int query_stride,
                                   float* scores) {
  typename V::F sum[kRowCount];
  for (int r = 0; r < kRowCount; r++) sum[r] = V::set1(0.0f);
  for_each_dimension<V>(keys, dim, [&](int d, typename V::F k) {
    for (int r = 0; r < kRowCount; r++)
      sum[r] = V::fma(V::set1(queries[d * query_stride + r]), k, sum[r]);
  });
  for (int r = 0; r < kRowCount; r++) V::store(scores + r * kScoreStride, sum[r]);
}

// Many query vectors (prefill): keys are transposed once into a panel [dim, kVectors * kLanes] ...
template <class V, class T>
static inline void pack_keys(const T* keys, int dim, float* panel) {
  for_each_dimension<V>(
      keys, dim, [&](int d, typename V::F k) { V::store(panel + d * V::kVectors * V::kLanes, k); });
}

// ... and each kRows query vectors are multiplied with the panel.
template <class V, int kRowCount>
static inline void score_panel(const float* panel, int dim, const float* queries, int query_stride,
                               float* scores) {
  typename V::F sum[kRowCount][V::kVectors];
  for (int r = 0; r < kRowCount; r++)
    for (int v = 0; v < V::kVectors; v++) sum[r][v] = V::set1(0.0f);
  for (int d = 0; d < dim; d++) {
    typename V::F k[V::kVectors];
    for (int v = 0; v < V::kVectors; v++) k[v] = V::load(panel + (d * V::kVectors + v) * V::kLanes);
    for (int r = 0; r < kRowCount; r++) {
      const typename V::F q = V::set1(queries[d * query_stride + r]);
      for (int v = 0; v < V::kVectors; v++) sum[r][v] = V::fma(q, k[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRowCount; r++)
    for (int v = 0; v < V::kVectors; v++)
      V::store(scores + r * kScoreStride + v * V::kLanes, sum[r][v]);
}

}  // namespace octavo
