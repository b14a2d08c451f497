"""The matrix kernels by themselves, as declared in src/abi.h and laid out in src/matrix.h."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK_ROWS = 32
COL_UNIT = 64
SUM_COLS = 32
FORMATS = ("bfloat16", "int8", "group8", "group4", "group4min")  # MatrixFormat


class MatrixMultiplyArgs(ctypes.Structure):
    """OctavoMatrixMultiply of src/abi.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("data", "bias", "bf16", "int8", "scales", "sums")),
        ("out", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("num_blocks", "first_block", "count")),
        *((name, ctypes.c_int64) for name in ("first_row", "num_rows", "out_stride")),
        *((name, ctypes.c_int32) for name in ("format", "cols", "group", "add", "isa")),
    )


class MatrixReadRowArgs(ctypes.Structure):
    """OctavoMatrixReadRow of src/abi.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("data", "out")),
        *((name, ctypes.c_int64) for name in ("num_blocks", "row", "num_cols")),
        *((name, ctypes.c_int32) for name in ("format", "cols", "group", "isa")),
    )


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix in the layout of src/matrix.h.

    `data` is uint8 and starts at a multiple of 64 bytes; `cols` is padded to COL_UNIT.
    """

    format: str
    group: int  # 0 for the formats without groups
    cols: int
    num_blocks: int
    data: NDArray[np.uint8]


@dataclass(frozen=True)
class Rows:
    """Activations: either `bf16` (uint16, [num_rows, cols]) or the three others.

    They are int8 [num_rows, cols], scales float32 [num_rows, 1 or cols / group], and sums int32
    [num_rows, cols / SUM_COLS].
    """

    bf16: NDArray[np.uint16] | None = None
    int8: NDArray[np.int8] | None = None
    scales: NDArray[np.float32] | None = None
    sums: NDArray[np.int32] | None = None


def multiply(
    handle: ctypes.CDLL,
    isa: int,
    matrix: PackedMatrix,
    rows: Rows,
    out: NDArray[np.float32],
    *,
    first_row: int = 0,
    first_block: int = 0,
    bias: NDArray[np.float32] | None = None,
    add: bool = False,
) -> int:
    """Writes (or adds) rows times blocks to `out`, [num_rows, count * BLOCK_ROWS].

    The first row and block are given and `out` says how many. `bias` is [num_blocks * BLOCK_ROWS].
    Returns an OctavoStatus.
    """
    args = MatrixMultiplyArgs(
        data=_address(matrix.data),
        bias=_address(bias),
        bf16=_address(rows.bf16),
        int8=_address(rows.int8),
        scales=_address(rows.scales),
        sums=_address(rows.sums),
        out=_address(out),
        num_blocks=matrix.num_blocks,
        first_block=first_block,
        count=out.shape[1] // BLOCK_ROWS,
        first_row=first_row,
        num_rows=out.shape[0],
        out_stride=out.strides[0] // out.itemsize,
        format=FORMATS.index(matrix.format),
        cols=matrix.cols,
        group=matrix.group,
        add=add,
        isa=isa,
    )
    return int(handle.octavo_matrix_multiply(ctypes.byref(args)))


def read_row(
    handle: ctypes.CDLL, isa: int, matrix: PackedMatrix, row: int, out: NDArray[np.float32]
) -> int:
    """Writes the first len(out) columns of a row; returns an OctavoStatus."""
    args = MatrixReadRowArgs(
        data=_address(matrix.data),
        out=_address(out),
        num_blocks=matrix.num_blocks,
        row=row,
        num_cols=out.shape[0],
        format=FORMATS.index(matrix.format),
        cols=matrix.cols,
        group=matrix.group,
        isa=isa,
    )
    return int(handle.octavo_matrix_read_row(ctypes.byref(args)))


def _address(array: NDArray[np.generic] | None) -> int | None:
    return None if array is None else array.ctypes.data
