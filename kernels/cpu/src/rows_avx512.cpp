#include "rows_kernels.h"
#include "vec_avx512.h"

namespace octavo {

const RowKernels kAvx512Rows = row_kernels_of<Avx512>();

}  // namespace octavo
