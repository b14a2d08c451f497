// What the dot products of AVX-512 share.
#pragma once

#include <immintrin.h>

#include "attention_block.h"
#include "vec_avx512.h"

namespace octavo {
namespace {

// 2^x as vec_math.h has it, but to 7e-6: weights are rounded to fewer bits next.
static inline __m512 exp2_for_rounding(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0x08);  // x - round(x); 0 where x is infinite
  __m512 p = _mm512_set1_ps(9.65671e-03f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.583828e-02f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402253e-01f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9313673e-01f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, _mm512_roundscale_ps(x, 0x08));
}

// Keeps a vector in its register. Left to itself the compiler loads keys and values again for each
// use, and copies or spills sums.
static inline __m512i keep(__m512i x) {
  asm("" : "+v"(x));
  return x;
}

}  // namespace
}  // namespace octavo
