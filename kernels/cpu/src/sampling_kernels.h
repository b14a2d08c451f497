// The kernels of sampling.h over the compilers' vector extension. No product and sum are fused, so
// every instruction set gives the same bits.
//
// V names vectors of kLanes doubles (D), 64-bit integers (I), floats (F) and 32-bit integers (M),
// and widens F to D.
#pragma once

#include <limits>

#include "sampling.h"

namespace octavo {

template <class V>
struct Sampler {
  using D = typename V::D;
  using I = typename V::I;
  using F = typename V::F;
  using M = typename V::M;
  static constexpr int kLanes = V::kLanes;

  static constexpr int kStride = 16;  // values taken together, and partial sums
  static constexpr int kVectors = kStride / kLanes;

  static F load(const float* p) {
    F x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }

  // Relative error 6e-16; exactly 1 at the maximum, exactly 0 for -inf.
  static D weights(F values, const Weighing& by) {
    const D wide = V::widen(values);
    const D x = (wide - by.maximum) * by.scale;
    const D shifted = x + 0x1.8p52;  // the nearest integer is in the low bits
    const D f = x - (shifted - 0x1.8p52);
    D p = f * kCoefficients[9] + kCoefficients[8];
    for (int i = 7; i >= 0; i--) p = p * f + kCoefficients[i];
    p = p * f + 1.0;
    const D weight = (D)((I)p + ((I)shifted << 52));
    const I kept = (x >= -64.0) & (weight >= by.min_weight) & (wide >= by.floor);
    return (D)((I)weight & kept);
  }

  static double sum_weights(const float* values, int64_t count, const Weighing& by) {
    D sums[kVectors] = {};
    int64_t i = 0;
    for (; i + kStride <= count; i += kStride)
      for (int v = 0; v < kVectors; v++) sums[v] += weights(load(values + i + v * kLanes), by);
    if (i < count) {
      float rest[kStride];
      pad(values + i, count - i, kLowest, rest);
      for (int v = 0; v < kVectors; v++) sums[v] += weights(load(rest + v * kLanes), by);
    }
    double lanes[kStride];
    __builtin_memcpy(lanes, sums, sizeof lanes);
    for (int width = kStride / 2; width > 0; width /= 2)
      for (int j = 0; j < width; j++) lanes[j] += lanes[j + width];
    return lanes[0];
  }

  static void weigh(const float* values, int64_t count, const Weighing& by, double* out) {
    for (int64_t i = 0; i < count; i += kStride) {
      float rest[kStride];
      const float* from = values + i;
      if (count - i < kStride) {
        pad(from, count - i, kLowest, rest);
        from = rest;
      }
      double found[kStride];
      for (int v = 0; v < kVectors; v++) {
        const D w = weights(load(from + v * kLanes), by);
        __builtin_memcpy(found + v * kLanes, &w, sizeof w);
      }
      for (int64_t j = 0; j < kStride && i + j < count; j++) out[i + j] = found[j];
    }
  }

  static bool block_maxima(const float* values, int64_t count, float* maxima) {
    F wrong[kVectors] = {};
    for (int64_t b = 0; b * kSamplingBlock < count; b++) {
      const int64_t first = b * kSamplingBlock;
      const int64_t size = count - first < kSamplingBlock ? count - first : kSamplingBlock;
      maxima[b] = maximum(values + first, size, wrong);
    }
    return all_zero(wrong);
  }

  static bool masked_maxima(float* values, int64_t count, const uint32_t* mask, float* maxima) {
    F wrong[kVectors] = {};
    for (int64_t b = 0; b * kSamplingBlock < count; b++) {
      const int64_t first = b * kSamplingBlock;
      const int64_t size = count - first < kSamplingBlock ? count - first : kSamplingBlock;
      maxima[b] = kLowest;
      uint32_t any = 0;
      for (int64_t i = 0; i < size; i += 32) any |= mask[(first + i) / 32];
      if (any == 0) continue;
      F found[kVectors];
      for (int v = 0; v < kVectors; v++) found[v] = F{} + kLowest;
      for (int64_t i = first; i < first + size; i += kStride) {
        const int32_t bits = static_cast<int32_t>(mask[i / 32] >> (i % 32));
        if (first + size - i >= kStride) {
          take_allowed(values + i, bits, found, wrong);
          continue;
        }
        float rest[kStride];
        pad(values + i, first + size - i, 0.0f, rest);
        take_allowed(rest, bits & ((1 << (first + size - i)) - 1), found, wrong);
        for (int64_t j = 0; i + j < first + size; j++) values[i + j] = rest[j];
      }
      maxima[b] = largest(found);
    }
    return all_zero(wrong);
  }

  static void add_to_max(const float* values, int64_t count, int32_t first_id, RowMax& running) {
    F wrong[kVectors] = {};
    const float found = maximum(values, count, wrong);
    if (!all_zero(wrong)) {
      running.token_id = kNotFinite;
    } else if (count > 0 && found >= running.value) {
      int32_t i = 0;
      while (values[i] != found) i++;
      running.add({found, first_id + i});
    }
  }

private:
  static constexpr float kLowest = -std::numeric_limits<float>::infinity();

  // They interpolate (2^f - 1) / f at the Chebyshev nodes of [-0.5, 0.5].
  static constexpr double kCoefficients[10] = {
      0x1.62e42fefa39f7p-1,  0x1.ebfbdff82c590p-3,  0x1.c6b08d7044119p-5,  0x1.3b2ab6fba385fp-7,
      0x1.5d87fe908f88ap-10, 0x1.4309130378460p-13, 0x1.ffcb76789860fp-17, 0x1.62bfe46117445p-20,
      0x1.b6571de2f2351p-24, 0x1.e5e9f548e5725p-28,
  };

  static void pad(const float* values, int64_t count, float with, float (&out)[kStride]) {
    for (int j = 0; j < kStride; j++) out[j] = j < count ? values[j] : with;
  }

  // The largest value. What is not finite leaves NaN in `wrong`, which is 0 without.
  static float maximum(const float* values, int64_t count, F (&wrong)[kVectors]) {
    F found[kVectors];
    for (int v = 0; v < kVectors; v++) found[v] = F{} + kLowest;
    int64_t i = 0;
    for (; i + kStride <= count; i += kStride) take(values + i, found, wrong);
    if (i < count) {
      float rest[kStride];
      pad(values + i, count - i, values[i], rest);
      take(rest, found, wrong);
    }
    return largest(found);
  }

  static float largest(const F (&found)[kVectors]) {
    float lanes[kStride];
    __builtin_memcpy(lanes, found, sizeof lanes);
    for (int width = kStride / 2; width > 0; width /= 2)
      for (int j = 0; j < width; j++)
        lanes[j] = lanes[j] > lanes[j + width] ? lanes[j] : lanes[j + width];
    return lanes[0];
  }

  // As `take`, of those values whose bit is set; the others become -infinity.
  static void take_allowed(float* values, int32_t bits, F (&found)[kVectors],
                           F (&wrong)[kVectors]) {
    M lane;
    for (int j = 0; j < kLanes; j++) lane[j] = j;
    for (int v = 0; v < kVectors; v++) {
      float* at = values + v * kLanes;
      const F x = load(at);
      const M allowed = -(((M{} + bits) >> (lane + v * kLanes)) & 1);
      const F kept = (F)((allowed & (M)x) | (~allowed & (M)(F{} + kLowest)));
      __builtin_memcpy(at, &kept, sizeof kept);
      const M more = kept > found[v];
      found[v] = (F)((more & (M)kept) | (~more & (M)found[v]));
      wrong[v] += (F)(allowed & (M)(x * 0.0f));
    }
  }

  static void take(const float* values, F (&found)[kVectors], F (&wrong)[kVectors]) {
    for (int v = 0; v < kVectors; v++) {
      const F x = load(values + v * kLanes);
      const M more = x > found[v];
      found[v] = (F)((more & (M)x) | (~more & (M)found[v]));
      wrong[v] += x * 0.0f;
    }
  }

  static bool all_zero(const F (&wrong)[kVectors]) {
    float lanes[kStride];
    __builtin_memcpy(lanes, wrong, sizeof lanes);
    bool zero = true;
    for (float lane : lanes) zero = zero && lane == 0.0f;
    return zero;
  }
};

}  // namespace octavo
