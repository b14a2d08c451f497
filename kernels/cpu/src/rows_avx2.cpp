#include "rows_kernels.h"
#include "vec_avx2.h"

namespace octavo {

const RowKernels kAvx2Rows = row_kernels_of<Avx2>();

}  // namespace octavo
