// Checks a call, cuts it into row blocks and spreads them over threads.
#include "attention.h"

#include <algorithm>

#include "attention_plan.h"
#include "isa.h"

namespace octavo {
namespace {

// Items per thread at least, so that none is left waiting long for another's last.
constexpr int64_t kItemsPerThread = 8;
// What reading a token's key and value costs, in products with one query vector.
constexpr int64_t kReadCost = 6;

const AttentionKernels& kernels_for(int isa, int dtype) {
  const bool int8 = dtype == OCTAVO_INT8;
#ifdef OCTAVO_X86
  if (isa == OCTAVO_AVX512_BF16) return int8 ? kAvx512Int8Attention : kAvx512Bf16Attention;
  if (isa == OCTAVO_AVX512) return int8 ? kAvx512Int8Attention : kAvx512Attention;
  if (isa == OCTAVO_AVX2) return int8 ? kAvx2Int8Attention : kAvx2Attention;
#endif
  static_cast<void>(isa);
  return int8 ? kPortableInt8Attention : kPortableAttention;
}

// Row blocks of at most kBlockVectors query vectors (more where a single row has more). The blocks
// of one head are neighbours: a thread that takes one after another finds the keys in its cache.
void plan_rows(const AttentionArgs& args, std::vector<RowBlock>& blocks) {
  const int32_t group = args.num_heads / args.cache->num_kv_heads;
  const int32_t max_rows = std::max(1, kBlockVectors / group);
  blocks.clear();
  for (int32_t r = 0; r < args.num_requests; r++) {
    const int32_t start = args.query_start_loc[r], end = args.query_start_loc[r + 1];
    for (int32_t head = 0; head < args.cache->num_kv_heads; head++)
      for (int32_t row = start; row < end; row += max_rows) {
        RowBlock block{};
        block.request = r;
        block.head = head;
        block.first_row = row;
        block.num_rows = std::min(max_rows, end - row);
        block.position = args.seq_lens[r] - (end - row);
        const int32_t seen = args.window > 0 ? std::max(0, block.position - args.window + 1) : 0;
        block.first_split = seen / kSplit;
        block.end_split = (block.position + block.num_rows - 1) / kSplit + 1;
        block.state = -1;
        blocks.push_back(block);
      }
  }
}

int64_t cost(const AttentionArgs& args, const RowBlock& block) {
  const int64_t splits = block.end_split - block.first_split;
  return splits * (vectors_of(args, block) + kReadCost);
}

// Cuts blocks that would hold up the others into their splits, each with its own state. Returns
// the floats that those states take.
int64_t plan_items(const AttentionArgs& args, int num_threads, AttentionWorkspace& workspace) {
  int64_t all = 0, floats = 0;
  for (const RowBlock& block : workspace.rows) all += cost(args, block);
  const int64_t limit = num_threads == 1 ? all : all / (num_threads * kItemsPerThread);
  workspace.items.clear();
  for (RowBlock& block : workspace.rows) {
    if (block.end_split - block.first_split == 1 || cost(args, block) <= limit) {
      workspace.items.push_back(block);
      continue;
    }
    block.state = floats;
    for (int32_t split = block.first_split; split < block.end_split; split++) {
      RowBlock item = block;
      item.first_split = split;
      item.end_split = split + 1;
      item.state = floats;
      workspace.items.push_back(item);
      floats += state_floats(args, block);
    }
  }
  return floats;
}

}  // namespace

OctavoStatus check_attention(const AttentionArgs& args, int64_t* bad_index, int64_t* bad_value) {
  const auto fail = [=](OctavoStatus status, int64_t index, int64_t value) {
    *bad_index = index;
    *bad_value = value;
    return status;
  };
  const KvCache& cache = *args.cache;
  if (!isa_supported(args.isa)) return fail(OCTAVO_BAD_ISA, 0, args.isa);
  for (int32_t r = 0; r < args.num_requests; r++) {
    const int64_t start = args.query_start_loc[r], end = args.query_start_loc[r + 1];
    if (start < 0 || end < start || end > args.num_tokens)
      return fail(OCTAVO_BAD_QUERY_START_LOC, r, end);
    const int64_t seq_len = args.seq_lens[r];
    if (start == end) continue;
    if (seq_len < end - start || seq_len > int64_t{args.max_blocks} * cache.block_size)
      return fail(OCTAVO_BAD_SEQ_LEN, r, seq_len);
    const int64_t position = seq_len - (end - start);
    const int64_t seen = args.window > 0 ? std::max<int64_t>(0, position - args.window + 1) : 0;
    for (int64_t b = seen / cache.block_size; b * cache.block_size < seq_len; b++) {
      const int32_t block = args.block_tables[int64_t{r} * args.max_blocks + b];
      if (block < 0 || block >= cache.num_blocks) return fail(OCTAVO_BAD_BLOCK, r, block);
    }
  }
  return OCTAVO_OK;
}

void attend(ThreadPool& pool, const AttentionArgs& args, AttentionWorkspace& workspace) {
  const AttentionKernels& kernels = kernels_for(args.isa, args.cache->dtype);
  plan_rows(args, workspace.rows);
  const int64_t shared = plan_items(args, pool.num_threads(), workspace);
  int64_t own = 0;
  for (const RowBlock& block : workspace.rows) own = std::max(own, state_floats(args, block));
  workspace.states.reserve(shared + own * pool.num_threads());
  float* states = workspace.states.data();
  pool.run(static_cast<int64_t>(workspace.items.size()), [&](int64_t i, int thread) {
    const RowBlock& item = workspace.items[i];
    float* state = item.state < 0 ? states + shared + thread * own : states + item.state;
    kernels.attend(args, item, state);
    if (item.state < 0) kernels.finish(args, item, state);
  });
  for (const RowBlock& block : workspace.rows) {
    if (block.state < 0) continue;
    const int64_t floats = state_floats(args, block);
    float* state = states + block.state;
    for (int32_t i = 1; i < block.end_split - block.first_split; i++)
      kernels.merge(args, block, state, state + i * floats);
    kernels.finish(args, block, state);
  }
}

}  // namespace octavo
