#include "attention_bf16.h"

namespace octavo {

const AttentionKernels kAvx512Bf16Attention = kernels_of<Bf16Dot>();

}  // namespace octavo
