#include <immintrin.h>

#include "sampling_kernels.h"

namespace octavo {
namespace {

struct Avx512Vectors {
  static constexpr int kLanes = 8;
  typedef double D __attribute__((vector_size(64)));
  typedef int64_t I __attribute__((vector_size(64)));
  typedef float F __attribute__((vector_size(32)));
  typedef int32_t M __attribute__((vector_size(32)));
  static D widen(F x) { return _mm512_cvtps_pd(x); }
};

using S = Sampler<Avx512Vectors>;

}  // namespace

const SamplingKernels kAvx512Sampling = {S::add_to_max, S::block_maxima, S::masked_maxima,
                                         S::sum_weights, S::weigh};

}  // namespace octavo
