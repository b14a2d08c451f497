#include <cmath>

#include "attention.h"
#include "bfloat16.h"
#include "rotation.h"

namespace octavo {
namespace {

// Rows are rounded as a whole, in vectors, and then spread.
void write_bfloat16(const KvCache& cache, uint8_t* piece, int64_t token, const float* key,
                    const float* value) {
  BFloat16 row[kMaxHeadDim];
  for (int64_t d = 0; d < cache.head_dim; d++) store_as(key[d], row + d);
  uint8_t* k = piece + token * 4;
  for (int64_t d = 0; d < cache.head_dim; d += 2) memcpy(k + d / 2 * 64, row + d, 4);
  for (int64_t d = 0; d < cache.head_dim; d++) store_as(value[d], row + d);
  auto* v = reinterpret_cast<BFloat16*>(piece + cache.k_bytes) +
            token / 2 * (2 * cache.padded_dim) + token % 2;
  for (int64_t d = 0; d < cache.head_dim; d++) v[2 * d] = row[d];
}

// The scale of a row: its largest magnitude is 127 of it. Not finite if the row is not.
float scale_of(const float* row, int64_t length) {
  float largest = 0.0f, faults = 0.0f;
  for (int64_t d = 0; d < length; d++) {
    largest = std::fabs(row[d]) > largest ? std::fabs(row[d]) : largest;
    faults += row[d] * 0.0f;
  }
  return largest / 127.0f + faults;
}

// The nearest integer, ties to even, for |x| < 2^22; whatever else for what is not finite.
int32_t nearest(float x) {
  const float shifted = x + 12582912.0f;
  int32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  return bits - 0x4b400000;
}

void write_int8(const KvCache& cache, uint8_t* piece, int64_t token, const float* plain_key,
                const float* value) {
  float key[kMaxHeadDim];
  memcpy(key, plain_key, sizeof(float) * cache.head_dim);
  rotate(key, cache.head_dim);
  const float k_scale = scale_of(key, cache.head_dim), v_scale = scale_of(value, cache.head_dim);
  memcpy(piece + token * 4, &k_scale, 4);
  memcpy(piece + cache.k_bytes + token * 4, &v_scale, 4);
  const float k_inverse = k_scale > 0.0f ? 1.0f / k_scale : 0.0f;
  const float v_inverse = v_scale > 0.0f ? 1.0f / v_scale : 0.0f;
  uint8_t row[kMaxHeadDim];
  for (int64_t d = 0; d < cache.head_dim; d++)
    row[d] = static_cast<uint8_t>(128 + nearest(key[d] * k_inverse));
  uint8_t* k = piece + 64 + token * 4;
  for (int64_t d = 0; d < cache.head_dim; d += 4) memcpy(k + d * 16, row + d, 4);
  for (int64_t d = 0; d < cache.head_dim; d++)
    row[d] = static_cast<uint8_t>(nearest(value[d] * v_inverse));
  uint8_t* v = piece + cache.k_bytes + 64 + token / 4 * (4 * cache.padded_dim) + token % 4;
  for (int64_t d = 0; d < cache.head_dim; d++) v[4 * d] = row[d];
}

}  // namespace

KvCache::KvCache(void* base, int32_t dtype, int32_t num_blocks, int32_t num_kv_heads,
                 int32_t block_size, int32_t head_dim)
    : base(static_cast<uint8_t*>(base)), dtype(dtype), num_blocks(num_blocks),
      num_kv_heads(num_kv_heads), block_size(block_size), head_dim(head_dim),
      padded_dim(static_cast<int32_t>(round_up(head_dim, 16))) {
  const int32_t element = dtype == OCTAVO_INT8 ? 1 : 2;
  const int32_t scales = dtype == OCTAVO_INT8 ? 4 * kPiece : 0;
  k_bytes = scales + kPiece * head_dim * element;
  piece_bytes = k_bytes + scales + kPiece * padded_dim * element;
  head_bytes = int64_t{block_size / kPiece} * piece_bytes;
  block_bytes = num_kv_heads * head_bytes;
}

int64_t kv_block_bytes(int32_t dtype, int32_t num_kv_heads, int32_t block_size, int32_t head_dim) {
  return KvCache(nullptr, dtype, 0, num_kv_heads, block_size, head_dim).block_bytes;
}

void write_kv(const KvCache& cache, int64_t slot, const float* keys, const float* values) {
  const int64_t place = slot % cache.block_size;
  uint8_t* piece =
      cache.base + slot / cache.block_size * cache.block_bytes + place / kPiece * cache.piece_bytes;
  const auto write = cache.dtype == OCTAVO_INT8 ? write_int8 : write_bfloat16;
  for (int32_t head = 0; head < cache.num_kv_heads; head++)
    write(cache, piece + head * cache.head_bytes, place % kPiece,
          keys + int64_t{head} * cache.head_dim, values + int64_t{head} * cache.head_dim);
}

}  // namespace octavo
