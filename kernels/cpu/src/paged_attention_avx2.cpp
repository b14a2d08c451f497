#include "attention_kernels.h"
#include "vec_avx2.h"

namespace octavo {

const AttentionKernels kAvx2Attention = kernels_of<Avx2>();

}  // namespace octavo
