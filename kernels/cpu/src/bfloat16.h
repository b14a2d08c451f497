// bfloat16 as stored: the upper half of a float32.
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo {

struct BFloat16 {
  uint16_t bits;
};

// `static` here and in the other headers of the kernels: each translation unit is compiled for its
// own instruction set, and the linker must not pick one unit's copy for another.
static inline float to_float(float x) {
  return x;
}

static inline float to_float(BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

static inline void store_as(float x, float* out) {
  *out = x;
}

// Rounds to nearest, ties to even, as torch does.
static inline void store_as(float x, BFloat16* out) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  out->bits = x != x ? uint16_t{0x7fc0} : static_cast<uint16_t>(rounded);
}

}  // namespace octavo
