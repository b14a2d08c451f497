#include <cstring>

#include "abi.h"

namespace {

// Copies one token's heads into its slot: [num_kv_heads, head_dim] to rows block_size apart.
void write_token(const OctavoKvCacheWrite& args, const void* from, int64_t stride, void* cache,
                 int64_t token, int64_t slot) {
  const int64_t element = args.dtype == OCTAVO_BFLOAT16 ? 2 : 4;
  const int64_t bytes = args.head_dim * element;
  const char* source = static_cast<const char*>(from) + token * stride * element;
  char* target = static_cast<char*>(cache) + slot / args.block_size * args.block_stride * element +
                 slot % args.block_size * bytes;
  for (int64_t head = 0; head < args.num_kv_heads; head++)
    memcpy(target + head * args.block_size * bytes, source + head * bytes, bytes);
}

}  // namespace

// One thread: a step writes a few hundred kilobytes at most, less than waking others costs.
extern "C" int octavo_kv_cache_write(OctavoKvCacheWrite* args) {
  const int64_t num_slots = int64_t{args->num_blocks} * args->block_size;
  for (int64_t token = 0; token < args->num_tokens; token++) {
    const int64_t slot = args->slot_mapping[token];
    if (slot < 0 || slot >= num_slots) {
      args->bad_index = token;
      args->bad_value = slot;
      return OCTAVO_BAD_SLOT;
    }
  }
  for (int64_t token = 0; token < args->num_tokens; token++) {
    const int64_t slot = args->slot_mapping[token];
    write_token(*args, args->key, args->key_stride, args->k_cache, token, slot);
    write_token(*args, args->value, args->value_stride, args->v_cache, token, slot);
  }
  return OCTAVO_OK;
}
