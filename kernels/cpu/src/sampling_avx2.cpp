#include <immintrin.h>

#include "sampling_kernels.h"

namespace octavo {
namespace {

struct Avx2Vectors {
  static constexpr int kLanes = 4;
  typedef double D __attribute__((vector_size(32)));
  typedef int64_t I __attribute__((vector_size(32)));
  typedef float F __attribute__((vector_size(16)));
  typedef int32_t M __attribute__((vector_size(16)));
  static D widen(F x) { return _mm256_cvtps_pd(x); }
};

using S = Sampler<Avx2Vectors>;

}  // namespace

const SamplingKernels kAvx2Sampling = {S::add_to_max, S::block_maxima, S::masked_maxima,
                                       S::sum_weights, S::weigh};

}  // namespace octavo
