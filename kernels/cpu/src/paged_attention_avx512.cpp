#include "attention_kernels.h"
#include "vec_avx512.h"

namespace octavo {

const AttentionKernels kAvx512Attention = kernels_of<Avx512>();

}  // namespace octavo
