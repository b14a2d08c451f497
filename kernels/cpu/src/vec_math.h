// exp2 and tanh over the vectors of vec_*.h, and reductions in a fixed order.
#pragma once

#include <cstdint>

namespace octavo {

// 2^x for x <= 127, relative error 1e-7; exactly 1 at 0, exactly 0 below -126.5 and at -inf; NaN
// stays NaN. The coefficients interpolate (2^f - 1) / f at the Chebyshev nodes of [-0.5, 0.5].
template <class V>
static inline typename V::F exp2(typename V::F x) {
  using F = typename V::F;
  x = V::max(V::set1(-127.0f), x);
  const F whole = V::round(x);
  const F f = V::sub(x, whole);
  F p = V::set1(1.545316294e-04f);
  p = V::fma(p, f, V::set1(1.339086336e-03f));
  p = V::fma(p, f, V::set1(9.618082557e-03f));
  p = V::fma(p, f, V::set1(5.550357114e-02f));
  p = V::fma(p, f, V::set1(2.402265076e-01f));
  p = V::fma(p, f, V::set1(6.931471880e-01f));
  p = V::fma(p, f, V::set1(1.0f));
  return V::mul(p, V::power_of_two(whole));
}

// tanh(x), relative error 3e-7. Near 0 an odd polynomial (the coefficients of Cephes' tanhf), since
// 1 - 2 / (e^2x + 1) would cancel there.
template <class V>
static inline typename V::F tanh(typename V::F x) {
  using F = typename V::F;
  const F size = V::abs(x), square = V::mul(x, x);
  F p = V::set1(-5.70498872745e-3f);
  p = V::fma(p, square, V::set1(2.06390887954e-2f));
  p = V::fma(p, square, V::set1(-5.37397155531e-2f));
  p = V::fma(p, square, V::set1(1.33314422036e-1f));
  p = V::fma(p, square, V::set1(-3.33332819422e-1f));
  const F near_zero = V::fma(V::mul(p, square), x, x);
  const F power = exp2<V>(V::min(V::set1(126.0f), V::mul(size, V::set1(2.885390082f))));
  const F far = V::sub(V::set1(1.0f), V::div(V::set1(2.0f), V::add(power, V::set1(1.0f))));
  return V::select_less(size, V::set1(0.625f), near_zero, V::copy_sign(far, x));
}

template <class V>
static inline float reduce_max(typename V::F x) {
  float lanes[V::kLanes];
  V::store(lanes, x);
  float result = lanes[0];
  for (int i = 1; i < V::kLanes; i++) result = lanes[i] > result ? lanes[i] : result;
  return result;
}

// Halves are added to each other until one lane is left.
template <class V>
static inline float reduce_add(typename V::F x) {
  float lanes[V::kLanes];
  V::store(lanes, x);
  for (int width = V::kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}

}  // namespace octavo
