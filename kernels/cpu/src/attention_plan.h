// How a call of `attend` is cut into work, and what the kernels of an instruction set offer.
//
// The unit is a row block: some query rows of one request with the query heads of one key-value
// head. A query row with one query head is a query vector. Keys are taken in splits of kSplit
// absolute positions. Each split is computed from a fresh state, and states are merged in order of
// position:
//
//   positions   0        256       512       768
//               | split 0 | split 1 | split 2 |       state = merge(merge(s0, s1), s2)
//
// So a vector's arithmetic is fixed by its own position: neither the rows beside it, nor where a
// chunk begins, nor which thread computes which split changes a bit. What a vector does not see has
// weight 0, and adding 0 changes nothing.
#pragma once

#include "attention.h"

namespace octavo {

constexpr int kSplit = 256;
constexpr int kSplitPieces = kSplit / kPiece;

// Vectors that share the keys that one core's caches hold; whole tiles of 6 and of 12.
constexpr int kBlockVectors = 48;

static inline int vectors_of(const AttentionArgs& args, const RowBlock& block) {
  return block.num_rows * (args.num_heads / args.cache->num_kv_heads);
}

// The softmax state: per vector the weighted sum of values, the largest score, the sum of weights.
static inline int64_t state_floats(const AttentionArgs& args, const RowBlock& block) {
  return round_up(int64_t{vectors_of(args, block)} * (args.cache->padded_dim + 2), 16);
}

// One instruction set's kernels for one dtype of the cache.
struct AttentionKernels {
  // Computes the block's splits into `state`.
  void (*attend)(const AttentionArgs&, const RowBlock&, float* state);
  // Merges the state of the next splits into `state`.
  void (*merge)(const AttentionArgs&, const RowBlock&, float* state, const float* next);
  // Writes the block's rows of `out`.
  void (*finish)(const AttentionArgs&, const RowBlock&, const float* state);
};

extern const AttentionKernels kPortableAttention, kPortableInt8Attention;
extern const AttentionKernels kAvx2Attention, kAvx2Int8Attention;
extern const AttentionKernels kAvx512Attention;      // bfloat16 by way of float32
extern const AttentionKernels kAvx512Int8Attention;  // VNNI
extern const AttentionKernels kAvx512Bf16Attention;  // VDPBF16PS

}  // namespace octavo
