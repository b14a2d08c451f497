#include "attention_kernels.h"
#include "vec_portable.h"

namespace octavo {

const AttentionKernels kPortableAttention = kernels_of<Portable>();

}  // namespace octavo
