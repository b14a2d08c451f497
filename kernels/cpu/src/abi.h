// The library's C interface. kernels/cpu/library.py declares the same structures through ctypes;
// OCTAVO_ABI_VERSION changes with every change here, so that a stale build is refused, not misread.
#pragma once

#include <stdint.h>

#define OCTAVO_ABI_VERSION 1
#define OCTAVO_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum OctavoDtype { OCTAVO_FLOAT32 = 0, OCTAVO_BFLOAT16 = 1 };

// Ordered: a larger one is faster where the CPU has it.
enum OctavoIsa {
  OCTAVO_PORTABLE = 0,
  OCTAVO_AVX2 = 1,         // and FMA
  OCTAVO_AVX512 = 2,       // F, BW, DQ, VL, VNNI (Ice Lake)
  OCTAVO_AVX512_BF16 = 3,  // and BF16 (Sapphire Rapids, Zen 4)
};

// What a call returns. For other than OK, `bad_index` and `bad_value` of its arguments say where.
enum OctavoStatus {
  OCTAVO_OK = 0,
  OCTAVO_BAD_ISA = 1,              // value: the ISA that this CPU or build lacks
  OCTAVO_BAD_QUERY_START_LOC = 2,  // index: request whose row range is no range of query rows
  OCTAVO_BAD_SEQ_LEN = 3,          // index: request; value: its length
  OCTAVO_BAD_BLOCK = 4,            // index: request; value: the block number
  OCTAVO_BAD_SLOT = 5,             // index: token; value: its slot
  OCTAVO_OUT_OF_MEMORY = 6,
};

// Shapes are those of kernels/reference/paged_attention.py. Strides count elements; whatever has
// none is contiguous.
struct OctavoPagedAttention {
  const void* query;
  void* out;
  const void* k_cache;
  const void* v_cache;
  const int32_t* block_tables;
  const int32_t* seq_lens;
  const int32_t* query_start_loc;
  int64_t query_stride;  // between tokens
  int64_t out_stride;    // between tokens
  int64_t block_stride;  // between blocks, of both caches
  int32_t num_tokens;
  int32_t num_requests;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;    // a multiple of 8
  int32_t block_size;  // a multiple of 16
  int32_t num_blocks;
  int32_t max_blocks;
  int32_t query_dtype;  // also of out
  int32_t cache_dtype;
  int32_t window;  // 0: none
  int32_t num_threads;
  int32_t isa;
  float scale;
  float softcap;  // 0: none
  int64_t bad_index;
  int64_t bad_value;
};

// Shapes are those of kernels/reference/kv_cache_write.py; all four tensors have one dtype.
struct OctavoKvCacheWrite {
  const void* key;
  const void* value;
  void* k_cache;
  void* v_cache;
  const int32_t* slot_mapping;
  int64_t key_stride;    // between tokens
  int64_t value_stride;  // between tokens
  int64_t block_stride;  // between blocks, of both caches
  int32_t num_tokens;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
  int32_t num_blocks;
  int32_t dtype;
  int64_t bad_index;
  int64_t bad_value;
};

OCTAVO_EXPORT int octavo_abi_version(void);
OCTAVO_EXPORT int octavo_isa_supported(int isa);  // by this build and this CPU
OCTAVO_EXPORT int octavo_paged_attention(struct OctavoPagedAttention* args);
OCTAVO_EXPORT int octavo_kv_cache_write(struct OctavoKvCacheWrite* args);

#ifdef __cplusplus
}
#endif
