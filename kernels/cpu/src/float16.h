// IEEE 754 binary16 as stored.
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo {

struct Float16 {
  uint16_t bits;
};

// Exact, subnormal numbers included: the instruction VCVTPH2PS gives the same bits.
static inline float to_float(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t magnitude = x.bits & 0x7fff;
  if (magnitude < 0x0400) {  // subnormal: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t exponent_shift = magnitude >= 0x7c00 ? 224u << 23 : 112u << 23;
  const uint32_t bits = sign | ((magnitude << 13) + exponent_shift);
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// Rounds to nearest, ties to even, as VCVTPS2PH does; what is too large becomes infinite.
static inline void store_as(float x, Float16* out) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  uint32_t half;
  if (bits > 0x7f800000) {
    half = 0x7e00;  // NaN
  } else if (bits < 0x38800000) {
    // Subnormal as float16, a multiple of 2^-24, which is the last place of a sum with 1/2.
    float magnitude;
    memcpy(&magnitude, &bits, sizeof bits);
    magnitude += 0.5f;
    memcpy(&half, &magnitude, sizeof half);
    half -= 0x3f000000;
  } else {
    half = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
    if (half > 0x7c00) half = 0x7c00;
  }
  out->bits = static_cast<uint16_t>(half | sign);
}

}  // namespace octavo
