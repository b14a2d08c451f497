"""Coded weights as blocks that `octavo_pack_rows` only has to move.

The blocks are ggml's, as src/pack_source.h reads them: each 32 columns of a row have a scale of
their own, so that a scale of a larger group is repeated. Codes are never rounded; scales, and
where there are zero points -scale · zero, become float16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.backend import StoredTensor
from kernels.coded import CODED_COLS, INT4, INT8, UINT4
from kernels.cpu.packing import MatrixFormat

if TYPE_CHECKING:
    import numpy.typing as npt

    from kernels.coded import CodedRows, Floats

_Q4_0 = np.dtype([("scale", "<f2"), ("codes", "u1", CODED_COLS // 2)])
_Q4_1 = np.dtype([("scale", "<f2"), ("min", "<f2"), ("codes", "u1", CODED_COLS // 2)])
_Q8_0 = np.dtype([("scale", "<f2"), ("codes", "i1", CODED_COLS)])


def as_packable(scheme: str, rows: CodedRows, format_: MatrixFormat) -> StoredTensor:
    """The rows in the nearest scheme of `StoredTensor` that `format_` is packed from.

    `scheme` is that of the `CodedTensor` they are of. Where the format has no place for its codes,
    they are decoded to float32.
    """
    if format_ is MatrixFormat.GROUP4MIN and scheme == UINT4:
        return _q4_1(rows)
    if format_ in (MatrixFormat.GROUP4, MatrixFormat.GROUP4MIN) and scheme == INT4:
        return _q4_0(rows)
    if format_ is MatrixFormat.GROUP8 and scheme in (INT4, UINT4, INT8):
        return _q8_0(rows)
    values = rows.to_float32()
    return StoredTensor("F32", values.shape, values.reshape(-1).view(np.uint8))


def _q4_0(rows: CodedRows) -> StoredTensor:
    blocks = _blocks(rows, _Q4_0)
    blocks["codes"] = _halves(rows)
    return _stored("Q4_0", rows, blocks)


def _q4_1(rows: CodedRows) -> StoredTensor:
    blocks = _blocks(rows, _Q4_1)
    zeros = np.broadcast_to(rows.zeros, rows.scales.shape).astype(np.float32)
    blocks["min"] = _spread(-rows.scales * zeros, rows)
    blocks["codes"] = _halves(rows)
    return _stored("Q4_1", rows, blocks)


def _q8_0(rows: CodedRows) -> StoredTensor:
    blocks = _blocks(rows, _Q8_0)
    zeros = np.broadcast_to(rows.zeros, rows.scales.shape).astype(np.int16)
    codes = rows.codes.astype(np.int16).reshape(*rows.scales.shape, -1) - zeros[..., None]
    blocks["codes"] = codes.reshape(blocks["codes"].shape)
    return _stored("Q8_0", rows, blocks)


def _blocks(rows: CodedRows, kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
    num_rows, cols = rows.codes.shape
    blocks = np.empty((num_rows, cols // CODED_COLS), kind)
    blocks["scale"] = _spread(rows.scales, rows)
    return blocks


def _spread(values: Floats, rows: CodedRows) -> npt.NDArray[np.float16]:
    """A value of each group, for each of its blocks; too large ones become infinite."""
    blocks_of_group = rows.codes.shape[1] // rows.scales.shape[1] // CODED_COLS
    with np.errstate(over="ignore"):  # the packer refuses what is infinite, by its place
        return np.repeat(values.astype(np.float16), blocks_of_group, axis=1)


def _halves(rows: CodedRows) -> npt.NDArray[np.uint8]:
    pairs = rows.codes.reshape(len(rows.codes), -1, 2, CODED_COLS // 2)
    return pairs[:, :, 0] | pairs[:, :, 1] << np.uint8(4)


def _stored(scheme: str, rows: CodedRows, blocks: npt.NDArray[np.void]) -> StoredTensor:
    return StoredTensor(scheme, rows.codes.shape, blocks.reshape(-1).view(np.uint8))
