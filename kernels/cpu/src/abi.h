// The library's C interface. kernels/cpu/library.py declares the same structures through ctypes;
// OCTAVO_ABI_VERSION changes with every change here, so that a stale build is refused, not misread.
#pragma once

#include <stdint.h>

#define OCTAVO_ABI_VERSION 4
#define OCTAVO_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum OctavoDtype { OCTAVO_FLOAT32 = 0, OCTAVO_BFLOAT16 = 1, OCTAVO_INT8 = 2 };

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
  OCTAVO_BAD_PACKING = 7,    // no way from this scheme to this format
  OCTAVO_BAD_WEIGHT = 8,     // index: of a weight in its rows, that is not finite as packed
  OCTAVO_BAD_TOKEN = 9,      // index: row; value: its token
  OCTAVO_BAD_POSITION = 10,  // index: row; value: its position
  OCTAVO_BAD_ROW = 11,       // index: pick, or number of picks + logits row; value: the row
  OCTAVO_NO_KV = 12,         // the decoder has no KV pool yet
  OCTAVO_BAD_MASK = 13,      // index: pick; value: the mask
  OCTAVO_BAD_ADAPTER = 14,   // index: request; value: a slot that is empty
};

// How a file stores the rows of a weight; the names are GGUF's.
enum OctavoScheme {
  OCTAVO_F32 = 0,
  OCTAVO_F16 = 1,
  OCTAVO_BF16 = 2,
  OCTAVO_Q4_0 = 3,
  OCTAVO_Q4_1 = 4,
  OCTAVO_Q5_0 = 5,
  OCTAVO_Q8_0 = 6,
  OCTAVO_Q4_K = 7,
};

// One layer's KV cache, in the layout of attention.h.
struct OctavoKvCache {
  void* base;  // num_blocks times octavo_kv_block_bytes, aligned to 64
  int32_t dtype;
  int32_t num_blocks;
  int32_t num_kv_heads;
  int32_t block_size;  // a multiple of 16
  int32_t head_dim;    // a multiple of 8 up to 256
};

// Attention alone, for its tests: a decoder calls it from within. Shapes are those of
// kernels/reference/paged_attention.py; query and out are float32. Strides count floats between
// tokens.
struct OctavoPagedAttention {
  struct OctavoKvCache cache;
  const float* query;
  float* out;
  const int32_t* block_tables;
  const int32_t* seq_lens;
  const int32_t* query_start_loc;
  int64_t query_stride;
  int64_t out_stride;
  int32_t num_tokens;
  int32_t num_requests;
  int32_t max_blocks;
  int32_t num_heads;
  int32_t window;  // 0: none
  int32_t num_threads;
  int32_t isa;
  float scale;
  float softcap;  // 0: none
  int64_t bad_index;
  int64_t bad_value;
};

// Writes to the cache alone, for the tests. key and value: [num_tokens, num_kv_heads, head_dim].
struct OctavoKvCacheWrite {
  struct OctavoKvCache cache;
  const float* key;
  const float* value;
  const int32_t* slot_mapping;
  int64_t key_stride;
  int64_t value_stride;
  int32_t num_tokens;
  int64_t bad_index;
  int64_t bad_value;
};

// Rows of a weight on their way into a packed matrix (matrix.h). They fill whole blocks: block j of
// them becomes block first_block + j * block_step of the matrix.
struct OctavoPackRows {
  const void* source;  // [num_rows, cols] in the scheme, without gaps
  void* out;           // the matrix, aligned to 64 bytes
  int64_t num_rows;
  int64_t cols;  // of the source; a multiple of the scheme's own block
  int64_t first_block;
  int64_t block_step;
  int32_t scheme;
  int32_t format;  // MatrixFormat
  int32_t group;   // 32 or 64 for the group formats, else 0
  int32_t num_threads;
  int32_t isa;
  int64_t bad_index;
};

// One packed matrix; see matrix.h.
struct OctavoMatrix {
  const void* data;   // 64-byte aligned
  const float* bias;  // [num_blocks * 32], or null
  int64_t block_bytes;
  int32_t num_blocks;
  int32_t cols;
  int32_t group;
  int32_t format;
};

// Names are those of kernels/spec.py; null where the model has none. Norms are [hidden_size] or
// [head_dim], applied as they are.
struct OctavoLayer {
  struct OctavoMatrix qkv;  // q, k and v, each from a block boundary on
  struct OctavoMatrix o;
  struct OctavoMatrix gate_up;  // blocks of gate and up in turn
  struct OctavoMatrix down;
  const float* attn_norm;
  const float* q_norm;
  const float* k_norm;
  const float* post_attn_norm;
  const float* mlp_norm;
  const float* post_mlp_norm;
  int32_t rope;    // index into the decoder's frequencies
  int32_t window;  // 0: none
};

enum OctavoActivation { OCTAVO_SILU = 0, OCTAVO_GELU_TANH = 1 };

struct OctavoDecoderConfig {
  const struct OctavoLayer* layers;
  struct OctavoMatrix head;
  struct OctavoMatrix embed;
  const float* final_norm;
  const float* frequencies;  // [num_ropes, head_dim / 2]: angles per position
  const float* rope_scales;  // [num_ropes]: multiplies cos and sin
  int32_t num_layers;
  int32_t num_ropes;
  int32_t vocab_size;
  int32_t hidden_size;
  int32_t intermediate_size;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;  // a multiple of 8 up to 256
  int32_t activation;
  int32_t num_threads;
  int32_t isa;
  float norm_eps;
  float attention_scale;
  float attention_softcap;  // 0: none
  float logit_softcap;      // 0: none
  float embedding_scale;
};

enum { OCTAVO_ADAPTER_MATRICES = 4, OCTAVO_ADAPTER_PARTS = 3 };

// What an adapter adds to one matrix, laid out as low_rank.h says.
struct OctavoLowRank {
  const void* a;
  struct {
    const void* b;
    int32_t rank;                 // 0: none
  } parts[OCTAVO_ADAPTER_PARTS];  // q, k and v; gate and up; otherwise the first alone
};

// kernels/backend.py describes the arrays; `picked`, `logits` and `hidden` are written.
struct OctavoStep {
  const int32_t* token_ids;
  const int32_t* positions;
  const int32_t* slot_mapping;
  const int32_t* query_start_loc;
  const int32_t* seq_lens;
  const int32_t* block_tables;
  const int32_t* pick_rows;
  const double* temperature;
  const int32_t* top_k;
  const double* top_p;
  const double* min_p;
  const double* draw;
  const uint32_t* masks;   // [num_masks, (vocab_size + 31) / 32]
  const int32_t* mask_of;  // null where no row has a mask
  const int32_t* logits_rows;
  const int32_t* hidden_rows;
  const int32_t* adapters;  // null where no request has one
  int32_t* picked;
  float* logits;  // [num_logits, vocab_size]
  float* hidden;  // [num_hidden, hidden_size]
  int32_t num_tokens;
  int32_t num_requests;
  int32_t max_blocks;
  int32_t num_picks;
  int32_t num_logits;
  int32_t num_masks;
  int32_t num_hidden;
  double cpu_seconds;  // written: CPU time that the step's threads took
  int64_t bad_index;
  int64_t bad_value;
};

// Parts of a step, for measurements.
enum OctavoPhase {
  OCTAVO_PHASE_EMBED = 0,    // also the tables of cos and sin
  OCTAVO_PHASE_PREPARE = 1,  // norms and rounding, before each product
  OCTAVO_PHASE_QKV = 2,
  OCTAVO_PHASE_ROPE = 3,  // also the KV write
  OCTAVO_PHASE_ATTENTION = 4,
  OCTAVO_PHASE_OUTPUT = 5,
  OCTAVO_PHASE_GATE_UP = 6,
  OCTAVO_PHASE_DOWN = 7,
  OCTAVO_PHASE_HEAD = 8,
  OCTAVO_PHASE_PICK = 9,
  OCTAVO_NUM_PHASES = 10,
};

struct OctavoDecoder;

// Blocks [first_block, first_block + count) of a packed matrix (matrix.h; `format` is its
// MatrixFormat) times rows of bfloat16, or of int8 with scales and sums, on the calling thread. For
// the tests of the matrix kernels: a decoder calls those from within.
struct OctavoMatrixMultiply {
  const void* data;
  const float* bias;  // [num_blocks * 32] or null
  const void* bf16;
  const int8_t* int8;
  const float* scales;
  const int32_t* sums;
  float* out;          // [num_rows, out_stride]: of the first block's first output on
  int64_t num_blocks;  // of the matrix
  int64_t first_block;
  int64_t count;
  int64_t first_row;
  int64_t num_rows;
  int64_t out_stride;
  int32_t format;
  int32_t cols;
  int32_t group;
  int32_t add;
  int32_t isa;
};

// Row `row` of a packed matrix.
struct OctavoMatrixReadRow {
  const void* data;
  float* out;  // [num_cols]
  int64_t num_blocks;
  int64_t row;
  int64_t num_cols;
  int32_t format;
  int32_t cols;
  int32_t group;
  int32_t isa;
};

// Rows that a token each is picked from; a step picks in the same way. kernels/backend.py describes
// the arrays, [num_rows]; `picked` is written.
struct OctavoPickTokens {
  const float* logits;  // [num_rows, vocab_size]
  const double* temperature;
  const int32_t* top_k;
  const double* top_p;
  const double* min_p;
  const double* draw;
  const uint32_t* masks;  // [num_rows, (vocab_size + 31) / 32], or null
  int32_t* picked;
  int32_t num_rows;
  int32_t vocab_size;
  int32_t isa;
};

OCTAVO_EXPORT int octavo_abi_version(void);
OCTAVO_EXPORT int octavo_isa_supported(int isa);  // by this build and this CPU
OCTAVO_EXPORT int64_t octavo_kv_block_bytes(int32_t dtype, int32_t num_kv_heads, int32_t block_size,
                                            int32_t head_dim);
OCTAVO_EXPORT int octavo_paged_attention(struct OctavoPagedAttention* args);
OCTAVO_EXPORT int octavo_kv_cache_write(struct OctavoKvCacheWrite* args);
OCTAVO_EXPORT int octavo_matrix_multiply(const struct OctavoMatrixMultiply* args);
OCTAVO_EXPORT int octavo_matrix_read_row(const struct OctavoMatrixReadRow* args);
OCTAVO_EXPORT int octavo_pack_rows(struct OctavoPackRows* args);
OCTAVO_EXPORT int octavo_pick_tokens(const struct OctavoPickTokens* args);

// Weights, norms and frequencies stay the caller's and must outlive the decoder; `layers` need not.
// Null if there is no memory or no such ISA.
OCTAVO_EXPORT struct OctavoDecoder* octavo_decoder_create(const struct OctavoDecoderConfig* config);
OCTAVO_EXPORT void octavo_decoder_destroy(struct OctavoDecoder* decoder);
// `base`: num_layers · num_blocks · octavo_kv_block_bytes(…) bytes, zero, aligned to 64; the
// caller's, as the weights.
OCTAVO_EXPORT void octavo_decoder_set_kv(struct OctavoDecoder* decoder, void* base,
                                         int32_t num_blocks, int32_t block_size, int32_t kv_dtype);
// An adapter for a slot: [num_layers][OCTAVO_ADAPTER_MATRICES], qkv, o, gate_up and down of each
// layer, or null for none. What it points at is the caller's, as the weights. OK or OUT_OF_MEMORY.
OCTAVO_EXPORT int octavo_decoder_set_adapter(struct OctavoDecoder* decoder, int32_t slot,
                                             const struct OctavoLowRank* matrices);
OCTAVO_EXPORT int octavo_decoder_step(struct OctavoDecoder* decoder, struct OctavoStep* step);
// Wall time of all steps so far, [OCTAVO_NUM_PHASES] seconds.
OCTAVO_EXPORT void octavo_decoder_phase_seconds(const struct OctavoDecoder* decoder,
                                                double* seconds);

#ifdef __cplusplus
}
#endif
