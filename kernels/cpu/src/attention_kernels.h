// The three functions of AttentionKernels for one instruction set.
#pragma once

#include "attention_block.h"

namespace octavo {

template <class V>
static void merge(const OctavoPagedAttention& args, const RowBlock& block, float* state_floats,
                  const float* next_floats) {
  using F = typename V::F;
  const BlockShape shape(args, block);
  const StateView<float> state(state_floats, shape);
  const StateView<const float> next(next_floats, shape);
  for (int i = 0; i < shape.all_vectors; i++) {
    if (next.largest[i] == kMinusInfinity) continue;
    const float largest = state.largest[i] > next.largest[i] ? state.largest[i] : next.largest[i];
    float factors[2][V::kLanes];
    V::store(factors[0], exp2<V>(V::set1(state.largest[i] - largest)));
    V::store(factors[1], exp2<V>(V::set1(next.largest[i] - largest)));
    const F keep = V::set1(factors[0][0]), take = V::set1(factors[1][0]);
    state.largest[i] = largest;
    state.total[i] = state.total[i] * factors[0][0] + next.total[i] * factors[1][0];
    float* sums = state.sums + int64_t{i} * shape.padded_dim;
    const float* next_sums = next.sums + int64_t{i} * shape.padded_dim;
    for (int d = 0; d < shape.padded_dim; d += V::kLanes)
      V::store(sums + d, V::fma(V::load(sums + d), keep, V::mul(V::load(next_sums + d), take)));
  }
}

template <class V, class T>
static void attend_blocks(const OctavoPagedAttention& args, const RowBlock& block, int first,
                          int end, float* state, float* scratch) {
  BlockAttention<V, T> attention(args, block, scratch);
  attention.load_queries();
  attention.compute_split(first, state);
  for (int split = first + 1; split < end; split++) {
    attention.compute_split(split, attention.spare_state());
    merge<V>(args, block, state, attention.spare_state());
  }
}

template <class V>
static void attend(const OctavoPagedAttention& args, const RowBlock& block, int first, int end,
                   float* state, float* scratch) {
  if (args.cache_dtype == OCTAVO_BFLOAT16)
    attend_blocks<V, BFloat16>(args, block, first, end, state, scratch);
  else
    attend_blocks<V, float>(args, block, first, end, state, scratch);
}

template <class Q>
static inline void finish_as(const OctavoPagedAttention& args, const RowBlock& block,
                             const float* state_floats) {
  const BlockShape shape(args, block);
  const StateView<const float> state(state_floats, shape);
  for (int i = 0; i < shape.all_vectors; i++) {
    const int64_t row = block.first_row + i % shape.vectors / shape.group;
    const int64_t kv_head = block.first_head + i / shape.vectors;
    const int64_t head = kv_head * shape.group + i % shape.group;
    Q* out = static_cast<Q*>(args.out) + row * args.out_stride + head * args.head_dim;
    const float factor = 1.0f / state.total[i];
    const float* sums = state.sums + int64_t{i} * shape.padded_dim;
    for (int d = 0; d < args.head_dim; d++) store_as(sums[d] * factor, out + d);
  }
}

static void finish(const OctavoPagedAttention& args, const RowBlock& block, const float* state) {
  if (args.query_dtype == OCTAVO_BFLOAT16)
    finish_as<BFloat16>(args, block, state);
  else
    finish_as<float>(args, block, state);
}

template <class V>
constexpr AttentionKernels kernels_of() {
  static_assert(kPiece % V::kLanes == 0, "a vector of tokens lies in one piece");
  static_assert(V::kVectors * V::kLanes <= kMaxPanel && V::kRows <= kMaxRows,
                "scratch is sized for it");
  return {attend<V>, merge<V>, finish};
}

}  // namespace octavo
