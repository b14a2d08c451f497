// The rotation that keys have in an int8 cache, and queries when they meet them: q·k stays what it
// is, and a dimension that is much larger than the others (the biases of some models make one)
// is spread over all of them, so that the one scale of a key does not round the others away.
//
// It is the Walsh-Hadamard transform over runs of 2^n dimensions, the largest that fit: 80 is
// 64 + 16. See QuaRot, arXiv:2404.00456, which rotates keys in the same way.
#pragma once

namespace octavo {

// The run that begins where `left` dimensions are left; `left` is a multiple of 8.
static inline int rotation_run(int left) {
  int run = 8;
  while (2 * run <= left) run *= 2;
  return run;
}

// What keeps lengths as they are: 1 / sqrt(run).
static inline float rotation_factor(int run) {
  float factor = 1.0f;
  for (; run > 2; run /= 4) factor *= 0.5f;
  return run == 2 ? factor * 0.707106781f : factor;
}

static inline void rotate(float* x, int dim) {
  for (int begin = 0, run; begin < dim; begin += run) {
    run = rotation_run(dim - begin);
    for (int half = 1; half < run; half *= 2)
      for (int i = begin; i < begin + run; i += 2 * half)
        for (int j = i; j < i + half; j++) {
          const float a = x[j], b = x[j + half];
          x[j] = a + b;
          x[j + half] = a - b;
        }
    const float factor = rotation_factor(run);
    for (int i = begin; i < begin + run; i++) x[i] *= factor;
  }
}

}  // namespace octavo
