// What the planner (paged_attention.cpp) and the kernels of each instruction set share.
//
// The unit of work is a row block: some query rows of one request with all query heads of some
// key-value heads. A query row with one query head is a query vector. Keys are taken in splits of
// kSplit absolute positions. Each split is computed from a fresh state, and states are merged in
// order of position:
//
//   positions   0        512       1024      1536
//               | split 0 | split 1 | split 2 |       state = merge(merge(s0, s1), s2)
//
// So a vector's arithmetic is fixed by its own position: neither the rows beside it, nor where a
// chunk begins, nor which thread computes which split changes a bit.
#pragma once

#include <cstdint>

#include "abi.h"

namespace octavo {

constexpr int kSplit = 512;
constexpr int kPiece = 16;     // tokens that surely lie in one block, and are aligned in it
constexpr int kMaxPanel = 64;  // at least every kVectors * kLanes
constexpr int kScoreStride = kSplit + kMaxPanel;  // a panel may overshoot; also spreads cache sets

constexpr int kMaxRows = 6;  // at least every kRows, the vectors of a query panel

// As many keep scores and state in the second-level cache, and fill panels of 6.
constexpr int kBlockVectors = 48;

struct RowBlock {
  int32_t request;
  int32_t first_head;  // key-value heads
  int32_t num_heads;
  int32_t first_row;  // of the whole batch
  int32_t num_rows;
  int32_t position;  // of first_row in its request
  int32_t first_split;
  int32_t end_split;
};

constexpr int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Sizes of what a block needs.
struct BlockShape {
  int group;    // query heads per key-value head
  int vectors;  // per key-value head
  int all_vectors;
  int padded_dim;

  BlockShape(const OctavoPagedAttention& args, const RowBlock& block)
      : group(args.num_heads / args.num_kv_heads), vectors(block.num_rows * group),
        all_vectors(vectors * block.num_heads),
        padded_dim(static_cast<int>(round_up(args.head_dim, 16))) {}

  // The softmax state: per vector the weighted sum of values, the largest score, the sum of
  // weights.
  int64_t state_floats() const { return round_up(int64_t{all_vectors} * (padded_dim + 2), 16); }
  // Queries of a head in panels; the last panel is laid out whole even if it is not full.
  int64_t head_query_floats() const { return int64_t{vectors + kMaxRows - 1} * padded_dim; }
  int64_t score_floats() const { return int64_t{all_vectors} * kScoreStride; }
  int64_t panel_floats() const { return int64_t{padded_dim} * kMaxPanel; }
  int64_t staged_floats() const { return int64_t{padded_dim} * kPiece; }

  int64_t scratch_floats(int num_heads) const {
    return state_floats() + num_heads * head_query_floats() + score_floats() + panel_floats() +
           staged_floats();
  }
};

// One instruction set's kernels.
struct AttentionKernels {
  // Computes splits [first, end) of a block into `state`.
  void (*attend)(const OctavoPagedAttention&, const RowBlock&, int first, int end, float* state,
                 float* scratch);
  // Merges the state of the next splits into `state`.
  void (*merge)(const OctavoPagedAttention&, const RowBlock&, float* state, const float* next);
  // Writes the block's rows of `out`.
  void (*finish)(const OctavoPagedAttention&, const RowBlock&, const float* state);
};

extern const AttentionKernels kPortableAttention;
extern const AttentionKernels kAvx2Attention;
extern const AttentionKernels kAvx512Attention;

}  // namespace octavo
