// Four floats in the compilers' own vector extension: any CPU. It also says what the names mean:
//
//   max(a, b), min(a, b)     b where either is NaN, as x86 has it
//   fma(a, b, c)             a * b + c; whether it rounds once is the instruction set's affair, but
//                            it is the same in every use, so results do not depend on the caller
//   round(x)                 to the nearest integer, for |x| < 2^22
//   power_of_two(n)          2^n for an integer n in [-126, 127], and 0 for n = -127
//   hadamard(x)              the lanes' Walsh-Hadamard transform, without a factor
//   low_/high_bfloat16(x)    the bfloat16 in the lower or upper half of each lane, as float32
//   split_bytes(x, offset)   the four bytes of each lane, lowest first, as float32: signed, or
//                            unsigned with 128 taken off
//
// kRows x kVectors is the tile of accumulators that the registers hold.
#pragma once

#include "bfloat16.h"

namespace octavo {

struct Portable {
  typedef float F __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kRows = 6;
  static constexpr int kVectors = 2;

  static F set1(float x) { return F{x, x, x, x}; }
  static F load(const float* p) {
    F x;
    memcpy(&x, p, sizeof x);
    return x;
  }
  static F load(const BFloat16* p) {
    return F{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
  }
  static void store(float* p, F x) { memcpy(p, &x, sizeof x); }

  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F max(F a, F b) { return select(a > b, a, b); }
  static F min(F a, F b) { return select(a < b, a, b); }
  static F abs(F x) { return (F)((I)x & 0x7fffffff); }
  static F copy_sign(F magnitude, F sign) {
    return (F)((I)magnitude | ((I)sign & static_cast<int32_t>(0x80000000)));
  }
  static F select_less(F a, F b, F yes, F no) { return select(a < b, yes, no); }
  static F round(F x) { return (x + 12582912.0f) - 12582912.0f; }
  static F power_of_two(F n) { return (F)((__builtin_convertvector(n, I) + 127) << 23); }

  static F hadamard(F x) {
    const F a = {x[0] + x[1], x[0] - x[1], x[2] + x[3], x[2] - x[3]};
    return F{a[0] + a[2], a[1] + a[3], a[0] - a[2], a[1] - a[3]};
  }
  static F low_bfloat16(F x) { return (F)((I)x << 16); }
  static F high_bfloat16(F x) { return (F)((I)x & static_cast<int32_t>(0xffff0000)); }
  static void split_bytes(F x, bool offset, F (&bytes)[4]) {
    I lanes = (I)x;
    if (offset) lanes ^= static_cast<int32_t>(0x80808080);
    bytes[0] = __builtin_convertvector((lanes << 24) >> 24, F);
    bytes[1] = __builtin_convertvector((lanes << 16) >> 24, F);
    bytes[2] = __builtin_convertvector((lanes << 8) >> 24, F);
    bytes[3] = __builtin_convertvector(lanes >> 24, F);
  }

private:
  static F select(I mask, F yes, F no) { return (F)((mask & (I)yes) | (~mask & (I)no)); }
};

}  // namespace octavo
