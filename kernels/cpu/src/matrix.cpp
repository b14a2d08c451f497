#include "matrix.h"

#include "isa.h"

namespace octavo {

const MatrixKernels& matrix_kernels(int isa) {
#ifdef OCTAVO_X86
  if (isa == OCTAVO_AVX512_BF16) return kAvx512Bf16Matrix;
  if (isa == OCTAVO_AVX512) return kAvx512Matrix;
  if (isa == OCTAVO_AVX2) return kAvx2Matrix;
#endif
  static_cast<void>(isa);
  return kPortableMatrix;
}

}  // namespace octavo
