// Sixteen floats: AVX-512 F, BW, DQ and VL. See vec_portable.h for what each name promises.
#pragma once

#include <immintrin.h>

#include "bfloat16.h"

namespace octavo {

struct Avx512 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 6;  // 6 x 4 accumulators of 32 registers
  static constexpr int kVectors = 4;

  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load(const BFloat16* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F x) { return _mm512_abs_ps(x); }
  static F copy_sign(F magnitude, F sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
  }
  static F select_less(F a, F b, F yes, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static F round(F x) { return _mm512_roundscale_ps(x, 0x08); }
  static F power_of_two(F n) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  }

  static F hadamard(F x) {
    const F by1 = _mm512_setr_ps(1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1);
    const F by2 = _mm512_setr_ps(1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1);
    const F by4 = _mm512_setr_ps(1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1);
    const F by8 = _mm512_setr_ps(1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1);
    x = _mm512_fmadd_ps(x, by1, _mm512_permute_ps(x, 0xb1));
    x = _mm512_fmadd_ps(x, by2, _mm512_permute_ps(x, 0x4e));
    x = _mm512_fmadd_ps(x, by4, _mm512_shuffle_f32x4(x, x, 0xb1));
    return _mm512_fmadd_ps(x, by8, _mm512_shuffle_f32x4(x, x, 0x4e));
  }
  static F low_bfloat16(F x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16));
  }
  static F high_bfloat16(F x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static void split_bytes(F x, bool offset, F (&bytes)[4]) {
    __m512i lanes = _mm512_castps_si512(x);
    if (offset) lanes = _mm512_xor_si512(lanes, _mm512_set1_epi32(static_cast<int>(0x80808080)));
    bytes[0] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(lanes, 24), 24));
    bytes[1] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(lanes, 16), 24));
    bytes[2] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(lanes, 8), 24));
    bytes[3] = _mm512_cvtepi32_ps(_mm512_srai_epi32(lanes, 24));
  }
};

}  // namespace octavo
