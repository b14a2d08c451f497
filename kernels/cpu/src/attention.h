// Attention over a paged KV cache: what a decoder calls.
//
// One layer's cache is `num_blocks` blocks, one after another. A block holds, for each key-value
// head, its tokens in pieces of 16:
//
//   block    head 0 [ piece 0: K V | piece 1: K V | … ]  head 1 [ … ] …
//
//   bfloat16   K [head_dim/2][16 tokens][2]       V [16/2 tokens][dims][2]
//   int8       K scale float32 [16] · [head_dim/4][16 tokens][4] uint8      k = scale · (u - 128)
//              V scale float32 [16] · [16/4 tokens][dims][4] int8           v = scale · s
//              where k is rotated (rotation.h)
//
// `dims` is head_dim padded to a multiple of 16. So tokens lie side by side in the lanes of a
// vector where scores are made, dimensions where values are summed, and neighbours that a
// dot-product instruction sums are adjacent. A written token changes no byte of another.
#pragma once

#include <cstdint>
#include <vector>

#include "abi.h"
#include "aligned.h"
#include "thread_pool.h"

namespace octavo {

constexpr int kPiece = 16;  // tokens
constexpr int kMaxHeadDim = 256;

constexpr int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// One layer's cache. dtype is OCTAVO_BFLOAT16 or OCTAVO_INT8, head_dim a multiple of 8 up to
// kMaxHeadDim, block_size a multiple of kPiece. `base` is aligned to 64 bytes.
struct KvCache {
  KvCache(void* base, int32_t dtype, int32_t num_blocks, int32_t num_kv_heads, int32_t block_size,
          int32_t head_dim);

  uint8_t* base;
  int32_t dtype;
  int32_t num_blocks;
  int32_t num_kv_heads;
  int32_t block_size;
  int32_t head_dim;
  int32_t padded_dim;
  int32_t k_bytes;  // of a piece: where its V begins
  int32_t piece_bytes;
  int64_t head_bytes;  // from one head of a block to the next
  int64_t block_bytes;
};

// Bytes of one block of one layer; a multiple of 64.
int64_t kv_block_bytes(int32_t dtype, int32_t num_kv_heads, int32_t block_size, int32_t head_dim);

// Writes one token, [num_kv_heads, head_dim] each, into its slot: block · block_size + place in it.
// Tokens may be written from several threads at once.
void write_kv(const KvCache& cache, int64_t slot, const float* keys, const float* values);

// Shapes are those of kernels/reference/paged_attention.py.
struct AttentionArgs {
  const KvCache* cache;
  const float* query;    // [num_tokens, num_heads, head_dim], after RoPE
  float* out;            // alike; rows of no request are not written
  int64_t query_stride;  // floats from one token to the next
  int64_t out_stride;
  const int32_t* block_tables;  // [num_requests, max_blocks]
  const int32_t* seq_lens;
  const int32_t* query_start_loc;
  int32_t num_tokens;
  int32_t num_requests;
  int32_t max_blocks;
  int32_t num_heads;
  int32_t window;  // 0: none
  float scale;
  float softcap;  // 0: none
  int32_t isa;    // OctavoIsa
};

// Some query rows of one request with the query heads of one key-value head, over some splits of
// the positions (attention_plan.h).
struct RowBlock {
  int32_t request;
  int32_t head;       // key-value head
  int32_t first_row;  // of the whole batch
  int32_t num_rows;
  int32_t position;  // of first_row in its request
  int32_t first_split;
  int32_t end_split;
  int64_t state;  // where in the workspace, if other blocks hold the rest of the splits
};

// Memory that calls of `attend` use again.
struct AttentionWorkspace {
  std::vector<RowBlock> rows, items;
  AlignedArray<float> states;
};

// Whether all rows, lengths and block numbers are such that nothing outside of the arrays is read
// or written: OCTAVO_OK or what is wrong. `attend` does not check again. Reads neither query nor
// out nor the cache's memory.
OctavoStatus check_attention(const AttentionArgs& args, int64_t* bad_index, int64_t* bad_value);

// softmax(cap(scale · q·kᵀ) + mask) · v for each query row, accumulated in float32. A row's bits
// depend on its own request's tokens only. Throws std::bad_alloc before anything is computed.
void attend(ThreadPool& pool, const AttentionArgs& args, AttentionWorkspace& workspace);

}  // namespace octavo
