// How a call of MatrixKernels::multiply is cut into tiles: some rows of activations against one
// block. In an unnamed namespace, as all of the matrix_*.h headers are, since each translation unit
// compiles it for its own instruction set.
#pragma once

#include <array>
#include <utility>

#include "matrix.h"

namespace octavo {
namespace {

struct Tile {
  const PackedMatrix& w;
  const uint8_t* block;
  const float* bias;  // [kBlockRows] or null
  const Rows& a;
  int64_t row;  // the first one, in `a`
  float* out;
  int64_t out_stride;
  bool add;
  int64_t num_tiles;  // of the call
  // For each two cache lines of the block that a kernel reads, it prefetches two here and goes on
  // by `prefetch_step` bytes.
  const uint8_t* prefetch;
  int64_t prefetch_step;
};

// How far ahead of its reads a single tile asks for the memory.
constexpr int64_t kPrefetchBytes = 8192;

template <class Kernel, int... kRows>
constexpr auto tile_kernels(std::integer_sequence<int, kRows...>) {
  return std::array<void (*)(const Tile&), sizeof...(kRows)>{&Kernel::template run<kRows + 1>...};
}

// Cuts `num_rows` into tiles of at most Kernel::kMaxRows that differ by at most one row, and has
// Kernel::run<rows> compute each. A lone tile streams the block and prefetches a little ahead, into
// the block after it in memory too. Several read the block from the caches after the first one, so
// that each prefetches its share of the next block: memory and arithmetic then work at once.
template <class Kernel>
void run_tiles(const PackedMatrix& w, int64_t block, const Rows& a, int64_t first_row,
               int64_t num_rows, float* out, int64_t out_stride, bool add) {
  static constexpr auto kernels =
      tile_kernels<Kernel>(std::make_integer_sequence<int, Kernel::kMaxRows>());
  const int64_t num_tiles = (num_rows + Kernel::kMaxRows - 1) / Kernel::kMaxRows;
  const uint8_t* data = w.block(block);
  const float* bias = w.bias == nullptr ? nullptr : w.bias + block * kBlockRows;
  const int64_t step = (128 + num_tiles - 1) / num_tiles;
  const uint8_t* ahead = num_tiles > 1 ? data + w.block_bytes : data + kPrefetchBytes;
  Tile tile{w, data, bias, a, first_row, out, out_stride, add, num_tiles, ahead, step};
  for (int64_t t = 0; t < num_tiles; t++) {
    const int64_t rows = num_rows / num_tiles + (t < num_rows % num_tiles ? 1 : 0);
    kernels[rows - 1](tile);
    tile.row += rows;
    tile.out += rows * out_stride;
    if (num_tiles > 1) tile.prefetch += w.block_bytes / num_tiles;
  }
}

}  // namespace
}  // namespace octavo
