#include "attention_float.h"
#include "attention_vnni.h"
#include "vec_avx512.h"

namespace octavo {

const AttentionKernels kAvx512Attention = kernels_of<FloatDot<Avx512, Bf16Lanes<Avx512>>>();
const AttentionKernels kAvx512Int8Attention = kernels_of<VnniDot>();

}  // namespace octavo
