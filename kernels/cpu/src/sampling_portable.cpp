#include "sampling_kernels.h"

namespace octavo {
namespace {

struct PortableVectors {
  static constexpr int kLanes = 2;
  typedef double D __attribute__((vector_size(16)));
  typedef int64_t I __attribute__((vector_size(16)));
  typedef float F __attribute__((vector_size(8)));
  typedef int32_t M __attribute__((vector_size(8)));
  static D widen(F x) { return __builtin_convertvector(x, D); }
};

using S = Sampler<PortableVectors>;

}  // namespace

const SamplingKernels kPortableSampling = {S::add_to_max, S::block_maxima, S::masked_maxima,
                                           S::sum_weights, S::weigh};

}  // namespace octavo
