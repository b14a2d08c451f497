#include "rows_kernels.h"
#include "vec_portable.h"

namespace octavo {

const RowKernels kPortableRows = row_kernels_of<Portable>();

}  // namespace octavo
