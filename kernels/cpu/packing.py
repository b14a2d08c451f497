"""Rows of a weight as stored, into blocks of a packed matrix: octavo_pack_rows of src/pack.cpp."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from kernels.cpu.library import ISAS

if TYPE_CHECKING:
    from kernels.backend import StoredTensor
    from kernels.cpu.library import Library

_BAD_PACKING, _BAD_WEIGHT = 7, 8  # OctavoStatus


class MatrixFormat(IntEnum):
    """MatrixFormat of src/matrix.h, which has the layouts."""

    BFLOAT16 = 0
    INT8 = 1  # a scale for each row
    GROUP8 = 2  # a scale for each group of columns of a row
    GROUP4 = 3
    GROUP4MIN = 4  # a scale and a least value


@dataclass(frozen=True, slots=True)
class _Scheme:
    """How the library knows a scheme of `StoredTensor`, and the size of its smallest piece."""

    number: int  # OctavoScheme
    cols: int
    num_bytes: int


_SCHEMES = {
    "F32": _Scheme(0, 1, 4),
    "F16": _Scheme(1, 1, 2),
    "BF16": _Scheme(2, 1, 2),
    "Q4_0": _Scheme(3, 32, 18),
    "Q4_1": _Scheme(4, 32, 20),
    "Q5_0": _Scheme(5, 32, 22),
    "Q8_0": _Scheme(6, 32, 34),
    "Q4_K": _Scheme(7, 256, 144),
}
DENSE_SCHEMES = frozenset({"F32", "F16", "BF16"})


class PackRowsArgs(ctypes.Structure):
    """OctavoPackRows of src/abi.h."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("num_rows", "cols", "first_block", "block_step")),
        *((name, ctypes.c_int32) for name in ("scheme", "format", "group", "num_threads")),
        ("isa", ctypes.c_int32),
        ("bad_index", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class Destination:
    """Where rows go in a matrix: block j of theirs becomes block first_block + j · block_step."""

    address: int  # of the matrix
    format: MatrixFormat
    group: int  # columns, 0 for formats without groups
    first_block: int = 0
    block_step: int = 1


class NotFiniteError(ValueError):
    """A weight is infinite, not a number, or too large for the format."""


def packs_as_stored(scheme: str) -> bool:
    """Whether `pack_rows` reads the scheme itself; others go to it as float32."""
    return scheme in _SCHEMES


def pack_rows(
    library: Library,
    rows: StoredTensor,
    to: Destination,
    num_threads: int,
    isa: str | None = None,
) -> None:
    """Packs a tensor [num_rows, cols] of a scheme that `packs_as_stored`.

    isa is one of `library.isas`, by default the best; it changes no byte. Raises
    NotFiniteError, MemoryError, and ValueError for a tensor of the wrong size or a scheme that the
    format cannot be made from.
    """
    num_rows, cols = rows.shape
    scheme = _SCHEMES[rows.scheme]
    data = np.ascontiguousarray(rows.data)
    expected = num_rows * (cols // scheme.cols) * scheme.num_bytes
    if cols % scheme.cols or data.nbytes != expected:
        raise ValueError(
            f"{data.nbytes} bytes of {rows.scheme} are no matrix of {num_rows} × {cols}"
        )
    args = PackRowsArgs(
        source=data.ctypes.data,
        out=to.address,
        num_rows=num_rows,
        cols=cols,
        first_block=to.first_block,
        block_step=to.block_step,
        scheme=scheme.number,
        format=to.format,
        group=to.group,
        num_threads=num_threads,
        isa=ISAS.index(isa or library.isa),
    )
    status = library.handle.octavo_pack_rows(ctypes.byref(args))
    if status == _BAD_WEIGHT:
        row, col = divmod(args.bad_index, cols)
        kind = to.format.name.lower()
        raise NotFiniteError(f"not finite in {kind}, the first at row {row}, column {col}")
    if status == _BAD_PACKING:
        raise ValueError(f"{rows.scheme} cannot be packed as {to.format.name.lower()}")
    if status:
        raise MemoryError(f"no memory to pack a matrix of {num_rows} × {cols}")
