#include "abi.h"
#include "isa.h"
#include "matrix.h"

namespace octavo {
namespace {

template <class Args>
PackedMatrix packed_matrix(const Args& args, const float* bias) {
  PackedMatrix w{};
  w.data = static_cast<const uint8_t*>(args.data);
  w.bias = bias;
  w.format = static_cast<MatrixFormat>(args.format);
  w.block_bytes = block_bytes(w.format, args.cols, args.group);
  w.num_blocks = static_cast<int32_t>(args.num_blocks);
  w.cols = args.cols;
  w.group = args.group;
  return w;
}

int multiply(const OctavoMatrixMultiply& args) {
  if (!isa_supported(args.isa)) return OCTAVO_BAD_ISA;
  const PackedMatrix w = packed_matrix(args, args.bias);
  const Rows rows{static_cast<const BFloat16*>(args.bf16), args.int8, args.scales, args.sums,
                  args.cols};
  const MatrixKernels& kernels = matrix_kernels(args.isa);
  for (int64_t i = 0; i < args.count; i++)
    kernels.multiply(w, args.first_block + i, rows, args.first_row, args.num_rows,
                     args.out + i * kBlockRows, args.out_stride, args.add != 0);
  return OCTAVO_OK;
}

int read_row(const OctavoMatrixReadRow& args) {
  if (!isa_supported(args.isa)) return OCTAVO_BAD_ISA;
  const PackedMatrix w = packed_matrix(args, nullptr);
  matrix_kernels(args.isa).read_row(w, args.row, args.num_cols, args.out);
  return OCTAVO_OK;
}

}  // namespace
}  // namespace octavo

extern "C" int octavo_matrix_multiply(const OctavoMatrixMultiply* args) {
  return octavo::multiply(*args);
}

extern "C" int octavo_matrix_read_row(const OctavoMatrixReadRow* args) {
  return octavo::read_row(*args);
}
