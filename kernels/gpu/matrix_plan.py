"""How products x·Wᵀ are cut so that a row of the result depends on that row of x alone.

                K ─►
    W  N  ┌────────────┬────────────┬─────────┐
       │  │ segment 0  │ segment 1  │    2    │ ─► a tile of outputs, 64 or 128 of N
       ▼  └────────────┴────────────┴─────────┘

The bits of y[m, n] = Σ x[m, k] · w[n, k] follow from the order of the sum alone. Here it is: each
segment is summed by one chain of matrix instructions over ascending k, from zero; segments are
added in order, in float32 (int32 for int8). Where segments end is a function of W's shape and type:

    few rows     a program for each tile and segment, then one pass that adds up     skinny_gemm
    many rows    a program for each tile, which takes its segments one by one        gemm

W, not x, is the operand of which instructions take 64 rows (wgmma, tcgen05), and rows of x are the
side whose width is free. So one row goes through the same kind of instruction as a thousand, where
with the sides swapped few rows would fall back to mma.sync. That instructions of unequal width sum
alike is no promise of CUDA's: `kernels.gpu.gemm.prove_row_tiles` compares them on the machine.

torch.mm has no such order: cuBLAS picks a kernel, and with it an order, by the number of rows. It
is for those who choose speed over equal bits; or for row counts that were proved equal to each
other, as `kernels.reference.linear` does on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ROW_TILES = (16, 64, 128)  # rows of x in a tile
SKINNY_ROWS = 64  # the largest tile whose segments are summed side by side
CODES_GROUP = 64  # columns that share a scale of e4m3 codes, or a multiple: of 16-bit x a block_k
BLOCK_N = 64  # outputs of a tile of up to SKINNY_ROWS rows
WIDE_BLOCK_N = 128

_PROGRAMS = 128  # that keep a GPU's memory busy, about one a multiprocessor
_MIN_SEGMENT = 512  # columns; less is not worth the pass that adds up


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """The order of sums over a matrix's columns."""

    block_k: int  # columns that a program takes at a time
    segment: int  # columns, a multiple of block_k; the last segment may have fewer
    num_segments: int


@dataclass(frozen=True, slots=True)
class TileLaunch:
    """The launch of a tile; none of it is part of the arithmetic."""

    rows: int
    block_n: int
    num_warps: int
    num_stages: int


_LAUNCHES = {
    16: TileLaunch(16, BLOCK_N, 4, 5),
    64: TileLaunch(64, BLOCK_N, 4, 4),
    128: TileLaunch(128, WIDE_BLOCK_N, 8, 3),
}


def matrix_plan(num_out: int, num_in: int, dtype: torch.dtype) -> MatrixPlan:
    """The order of sums for a matrix [num_out, num_in]."""
    block_k = 128 // dtype.itemsize
    tiles = -(-num_out // BLOCK_N)
    wanted = max(min(_PROGRAMS // tiles, num_in // _MIN_SEGMENT), 1)
    segment = -(-num_in // (wanted * block_k)) * block_k
    return MatrixPlan(block_k, segment, -(-num_in // segment))


def tile_launch(num_rows: int, row_tiles: tuple[int, ...]) -> TileLaunch:
    """The launch for a number of rows: of the tightest tile that holds them, else the largest."""
    return _LAUNCHES[next((size for size in row_tiles if size >= num_rows), row_tiles[-1])]
