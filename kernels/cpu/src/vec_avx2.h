// Eight floats: AVX2 and FMA. See vec_portable.h for what each name promises.
#pragma once

#include <immintrin.h>

#include "bfloat16.h"

namespace octavo {

struct Avx2 {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 6;  // 6 x 2 accumulators of 16 registers
  static constexpr int kVectors = 2;

  static F set1(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static F load(const BFloat16* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static F copy_sign(F magnitude, F sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
  }
  static F select_less(F a, F b, F yes, F no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F power_of_two(F n) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }

  static F hadamard(F x) {
    const F by1 = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
    const F by2 = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
    const F by4 = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
    x = _mm256_fmadd_ps(x, by1, _mm256_permute_ps(x, 0xb1));
    x = _mm256_fmadd_ps(x, by2, _mm256_permute_ps(x, 0x4e));
    return _mm256_fmadd_ps(x, by4, _mm256_permute2f128_ps(x, x, 0x01));
  }
  static F low_bfloat16(F x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 16));
  }
  static F high_bfloat16(F x) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static void split_bytes(F x, bool offset, F (&bytes)[4]) {
    __m256i lanes = _mm256_castps_si256(x);
    if (offset) lanes = _mm256_xor_si256(lanes, _mm256_set1_epi32(static_cast<int>(0x80808080)));
    bytes[0] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(lanes, 24), 24));
    bytes[1] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(lanes, 16), 24));
    bytes[2] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(lanes, 8), 24));
    bytes[3] = _mm256_cvtepi32_ps(_mm256_srai_epi32(lanes, 24));
  }
};

}  // namespace octavo
