#include "rows.h"

#include "abi.h"

namespace octavo {

const RowKernels& row_kernels(int isa) {
#ifdef OCTAVO_X86
  if (isa >= OCTAVO_AVX512) return kAvx512Rows;
  if (isa == OCTAVO_AVX2) return kAvx2Rows;
#endif
  static_cast<void>(isa);
  return kPortableRows;
}

}  // namespace octavo
