#include "attention_float.h"
#include "vec_portable.h"

namespace octavo {

const AttentionKernels kPortableAttention = kernels_of<FloatDot<Portable, Bf16Lanes<Portable>>>();
const AttentionKernels kPortableInt8Attention =
    kernels_of<FloatDot<Portable, Int8Lanes<Portable>>>();

}  // namespace octavo
