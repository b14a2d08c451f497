#include <new>

#include "attention.h"

namespace {

octavo::KvCache view(const OctavoKvCache& cache) {
  return {cache.base,         cache.dtype,      cache.num_blocks,
          cache.num_kv_heads, cache.block_size, cache.head_dim};
}

}  // namespace

extern "C" int64_t octavo_kv_block_bytes(int32_t dtype, int32_t num_kv_heads, int32_t block_size,
                                         int32_t head_dim) {
  return octavo::kv_block_bytes(dtype, num_kv_heads, block_size, head_dim);
}

extern "C" int octavo_paged_attention(OctavoPagedAttention* call) {
  const octavo::KvCache cache = view(call->cache);
  octavo::AttentionArgs args{};
  args.cache = &cache;
  args.query = call->query;
  args.out = call->out;
  args.query_stride = call->query_stride;
  args.out_stride = call->out_stride;
  args.block_tables = call->block_tables;
  args.seq_lens = call->seq_lens;
  args.query_start_loc = call->query_start_loc;
  args.num_tokens = call->num_tokens;
  args.num_requests = call->num_requests;
  args.max_blocks = call->max_blocks;
  args.num_heads = call->num_heads;
  args.window = call->window;
  args.scale = call->scale;
  args.softcap = call->softcap;
  args.isa = call->isa;
  const int status = octavo::check_attention(args, &call->bad_index, &call->bad_value);
  if (status != OCTAVO_OK) return status;
  try {
    octavo::ThreadPool pool(call->num_threads);
    octavo::AttentionWorkspace workspace;
    octavo::attend(pool, args, workspace);
    return OCTAVO_OK;
  } catch (const std::bad_alloc&) {
    return OCTAVO_OUT_OF_MEMORY;
  }
}

extern "C" int octavo_kv_cache_write(OctavoKvCacheWrite* call) {
  const octavo::KvCache cache = view(call->cache);
  const int64_t num_slots = int64_t{cache.num_blocks} * cache.block_size;
  for (int64_t token = 0; token < call->num_tokens; token++) {
    const int64_t slot = call->slot_mapping[token];
    if (slot < 0 || slot >= num_slots) {
      call->bad_index = token;
      call->bad_value = slot;
      return OCTAVO_BAD_SLOT;
    }
  }
  for (int64_t token = 0; token < call->num_tokens; token++)
    octavo::write_kv(cache, call->slot_mapping[token], call->key + token * call->key_stride,
                     call->value + token * call->value_stride);
  return OCTAVO_OK;
}
