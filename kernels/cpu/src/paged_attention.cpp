// Checks a call, cuts it into row blocks and spreads them over threads.
//
// Threads are OpenMP's, in the libgomp that torch has loaded: its team is there already and, while
// torch's own operations run between ours, still awake. A pool of our own beside it (spinning 50
// us, then asleep) was measured on two cores, a job of 66 us after each torch product of 410 us:
// together 474 us with OpenMP and 603 us with the pool, whose threads and torch's take the cores
// from each other; with a third process busy, 474 and 775.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "attention.h"
#include "isa.h"

namespace octavo {
namespace {

const AttentionKernels& kernels_for(int isa) {
#ifdef OCTAVO_X86
  if (isa == OCTAVO_AVX512) return kAvx512Attention;
  if (isa == OCTAVO_AVX2) return kAvx2Attention;
#endif
  static_cast<void>(isa);
  return kPortableAttention;
}

int fail(OctavoPagedAttention& args, OctavoStatus status, int64_t index, int64_t value) {
  args.bad_index = index;
  args.bad_value = value;
  return status;
}

// Checks whatever could make a kernel read or write outside of its tensors.
int check(OctavoPagedAttention& args) {
  if (!isa_supported(args.isa)) return fail(args, OCTAVO_BAD_ISA, 0, args.isa);
  for (int32_t r = 0; r < args.num_requests; r++) {
    const int64_t start = args.query_start_loc[r], end = args.query_start_loc[r + 1];
    if (start < 0 || end < start || end > args.num_tokens)
      return fail(args, OCTAVO_BAD_QUERY_START_LOC, r, end);
    const int64_t seq_len = args.seq_lens[r];
    if (start == end) continue;
    if (seq_len < end - start || seq_len > int64_t{args.max_blocks} * args.block_size)
      return fail(args, OCTAVO_BAD_SEQ_LEN, r, seq_len);
    const int64_t position = seq_len - (end - start);
    const int64_t seen = args.window > 0 ? std::max<int64_t>(0, position - args.window + 1) : 0;
    for (int64_t b = seen / args.block_size; b * args.block_size < seq_len; b++) {
      const int32_t block = args.block_tables[int64_t{r} * args.max_blocks + b];
      if (block < 0 || block >= args.num_blocks) return fail(args, OCTAVO_BAD_BLOCK, r, block);
    }
  }
  return OCTAVO_OK;
}

// Row blocks of at most kBlockVectors query vectors (more where a single row has more), the longest
// first so that none is left over at the end.
std::vector<RowBlock> plan(const OctavoPagedAttention& args, bool share_heads) {
  const int32_t group = args.num_heads / args.num_kv_heads;
  const int32_t max_rows = std::max(1, kBlockVectors / group);
  std::vector<RowBlock> blocks;
  for (int32_t r = 0; r < args.num_requests; r++) {
    const int32_t start = args.query_start_loc[r], end = args.query_start_loc[r + 1];
    for (int32_t row = start; row < end; row += max_rows) {
      RowBlock block{};
      block.request = r;
      block.first_row = row;
      block.num_rows = std::min(max_rows, end - row);
      block.position = args.seq_lens[r] - (end - row);
      const int32_t seen = args.window > 0 ? std::max(0, block.position - args.window + 1) : 0;
      block.first_split = seen / kSplit;
      block.end_split = (block.position + block.num_rows - 1) / kSplit + 1;
      const int32_t heads = share_heads ? std::max(1, kBlockVectors / (block.num_rows * group)) : 1;
      for (int32_t head = 0; head < args.num_kv_heads; head += heads) {
        block.first_head = head;
        block.num_heads = std::min(heads, args.num_kv_heads - head);
        blocks.push_back(block);
      }
    }
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const RowBlock& a, const RowBlock& b) {
    return a.end_split - a.first_split > b.end_split - b.first_split;
  });
  return blocks;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};

using Floats = std::unique_ptr<float[], Free>;

Floats allocate(int64_t floats) {
  void* p = std::aligned_alloc(64, round_up(floats * int64_t{sizeof(float)}, 64));
  if (p == nullptr) throw std::bad_alloc();
  return Floats(static_cast<float*>(p));
}

// The calling thread's memory for all its helpers, kept between calls.
float* memory_of_at_least(int64_t floats) {
  thread_local Floats memory;
  thread_local int64_t size = 0;
  if (floats > size) {
    memory.reset();
    size = 0;
    memory = allocate(floats);
    size = floats;
  }
  return memory.get();
}

// Below about 20 us a thread, waking another one gains nothing.
constexpr int64_t kProductsPerThread = 1 << 19;

int threads_for(const OctavoPagedAttention& args) {
  int64_t products = 0;
  for (int32_t r = 0; r < args.num_requests; r++) {
    const int64_t rows = args.query_start_loc[r + 1] - args.query_start_loc[r];
    const int64_t seen = args.window > 0 ? std::min<int64_t>(args.seq_lens[r], args.window + rows)
                                         : args.seq_lens[r];
    products += rows * seen * args.num_heads * args.head_dim * 2;
  }
  return static_cast<int>(std::clamp<int64_t>(products / kProductsPerThread, 1, args.num_threads));
}

// Calls work(i, thread) for i in [0, count).
template <class Work>
void for_each(int64_t count, int num_threads, Work work) {
#ifdef _OPENMP
  const int threads = static_cast<int>(std::min<int64_t>(num_threads, count));
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < count; i++) work(i, omp_get_thread_num());
#else
  static_cast<void>(num_threads);
  for (int64_t i = 0; i < count; i++) work(i, 0);
#endif
}

// Each block is one thread's work.
void run_blocks(const OctavoPagedAttention& args, const AttentionKernels& kernels,
                const std::vector<RowBlock>& blocks, int num_threads) {
  int64_t state_floats = 0, scratch_floats = 0;
  for (const RowBlock& block : blocks) {
    const BlockShape shape(args, block);
    state_floats = std::max(state_floats, shape.state_floats());
    scratch_floats = std::max(scratch_floats, shape.scratch_floats(block.num_heads));
  }
  const int64_t per_thread = state_floats + scratch_floats;
  float* memory = memory_of_at_least(per_thread * num_threads);
  for_each(blocks.size(), num_threads, [&](int64_t i, int thread) {
    float* state = memory + thread * per_thread;
    kernels.attend(args, blocks[i], blocks[i].first_split, blocks[i].end_split, state,
                   state + state_floats);
    kernels.finish(args, blocks[i], state);
  });
}

// Each split of each block is: for too few blocks to keep the threads busy (one long request, say).
void run_splits(const OctavoPagedAttention& args, const AttentionKernels& kernels,
                const std::vector<RowBlock>& blocks, int num_threads) {
  struct Part {
    const RowBlock* block;
    int split;
    int64_t state;  // where in memory
  };
  std::vector<Part> parts;
  int64_t floats = 0, per_thread = 0;
  for (const RowBlock& block : blocks) {
    const BlockShape shape(args, block);
    per_thread = std::max(per_thread, shape.scratch_floats(block.num_heads));
    for (int split = block.first_split; split < block.end_split; split++) {
      parts.push_back({&block, split, floats});
      floats += shape.state_floats();
    }
  }
  float* memory = memory_of_at_least(floats + per_thread * num_threads);
  float* scratch = memory + floats;
  for_each(parts.size(), num_threads, [&](int64_t i, int thread) {
    kernels.attend(args, *parts[i].block, parts[i].split, parts[i].split + 1,
                   memory + parts[i].state, scratch + thread * per_thread);
  });
  for (size_t i = 0; i < parts.size();) {
    const RowBlock& block = *parts[i].block;
    float* state = memory + parts[i].state;
    for (i++; i < parts.size() && parts[i].block == &block; i++)
      kernels.merge(args, block, state, memory + parts[i].state);
    kernels.finish(args, block, state);
  }
}

void run(const OctavoPagedAttention& args) {
  const AttentionKernels& kernels = kernels_for(args.isa);
  const int num_threads = threads_for(args);
  const size_t enough = num_threads == 1 ? 1 : 4 * static_cast<size_t>(num_threads);
  std::vector<RowBlock> blocks = plan(args, true);
  if (blocks.size() < enough) blocks = plan(args, false);
  if (blocks.size() < enough)
    run_splits(args, kernels, blocks, num_threads);
  else
    run_blocks(args, kernels, blocks, num_threads);
}

}  // namespace
}  // namespace octavo

extern "C" int octavo_paged_attention(OctavoPagedAttention* args) {
  try {
    const int status = octavo::check(*args);
    if (status == OCTAVO_OK) octavo::run(*args);
    return status;
  } catch (const std::bad_alloc&) {
    return OCTAVO_OUT_OF_MEMORY;
  }
}
