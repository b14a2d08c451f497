#include "attention_float.h"
#include "vec_avx2.h"

namespace octavo {

const AttentionKernels kAvx2Attention = kernels_of<FloatDot<Avx2, Bf16Lanes<Avx2>>>();
const AttentionKernels kAvx2Int8Attention = kernels_of<FloatDot<Avx2, Int8Lanes<Avx2>>>();

}  // namespace octavo
