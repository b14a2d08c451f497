"""Weights that a file keeps as small codes with scales: AWQ, GPTQ, fp8 and compressed-tensors.

    w[row, col] = scale[row, g] · (level(code[row, col]) - zero[row, g])     g: of the column

A loader gives them whole and unpacked, whatever their layout was, some rows at a time; a back end
makes its own layout of them. Schemes that a back end can keep without rounding a code have names
here; others are for people, and mean that the values have to be decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    Codes: TypeAlias = npt.NDArray[np.uint8]
    Floats: TypeAlias = npt.NDArray[np.float32]

# In the first three a group is a multiple of CODED_COLS neighbouring columns.
INT4 = "INT4"  # codes 0 to 15 that stand at zero for 8
UINT4 = "UINT4"  # codes 0 to 15, a zero point for each group
INT8 = "INT8"  # codes 0 to 255 that stand at zero for 128
CODED_COLS = 32
FP8 = "F8_E4M3"  # bytes of float8 with a scale for each row, for activations in float8 as well
FP8_WEIGHTS = "F8_E4M3 weights"  # the same for activations in 16 bits, or scales for FP8_COLS
FP8_COLS = 64  # neighbouring columns, or multiples, that share a scale

_GPU_COLS = 64  # that `kernels.gpu.w4a16` takes at a time
_FP8_ALIGNMENT = 16  # columns of float8 that a GPU fetches at once
_SCALE_BYTES = 4
_ROW_UNIT = 32
_DECODED_VALUES = 1 << 20  # at a time


@dataclass(frozen=True, slots=True)
class CodedRows:
    """Some rows of a matrix, [rows, cols]."""

    codes: Codes  # [rows, cols]
    scales: Floats  # [rows, groups]
    zeros: Codes | int  # [rows, groups], or one for all
    groups: npt.NDArray[np.int32] | None = None  # [cols], each column's; None: neighbours alike
    levels: Floats | None = None  # [256], what codes stand for; None: for themselves

    def to_float32(self) -> Floats:
        """The values, as a new array."""
        rows, cols = self.codes.shape
        if self.levels is not None:
            values = self.levels[self.codes]
        else:
            values = self.codes.astype(np.float32)
        if self.groups is not None:
            if not isinstance(self.zeros, int):
                values -= self.zeros.astype(np.float32)[:, self.groups]
            elif self.zeros:
                values -= np.float32(self.zeros)
            values *= self.scales[:, self.groups]
            return values
        grouped = values.reshape(rows, self.scales.shape[1], -1)
        if not isinstance(self.zeros, int):
            grouped -= self.zeros.astype(np.float32)[..., None]
        elif self.zeros:
            grouped -= np.float32(self.zeros)
        grouped *= self.scales[..., None]
        return grouped.reshape(rows, cols)


class CodedTensor(Protocol):
    """A coded matrix of a checkpoint, unpacked as it is asked for. It stands for `StoredTensor`."""

    @property
    def scheme(self) -> str:
        """INT4, UINT4 or INT8, or another name, for people, of what has to be decoded."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """[out, in]."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales and zero points included."""
        ...

    def rows(self, start: int, stop: int) -> CodedRows:
        """Rows `start` to `stop`. Raises ValueError where the file contradicts itself."""
        ...

    def to_float32(self) -> Floats:
        """All values, as a new array of `shape`."""
        ...


def keeps_codes(schemes: Iterable[str], num_cols: int) -> bool:
    """Whether a GPU multiplies with matrices of these schemes, side by side, as they are coded."""
    found = set(schemes)
    if found <= {FP8, FP8_WEIGHTS}:
        return num_cols % _FP8_ALIGNMENT == 0
    return num_cols % _GPU_COLS == 0 and found <= {INT4, UINT4}


def kept_bytes(schemes: Iterable[str], num_cols: int) -> float:
    """What a weight of such matrices takes at most, its part of scales and zero points included."""
    found = set(schemes)
    if found == {FP8}:
        return 1 + _SCALE_BYTES / num_cols
    if FP8_WEIGHTS in found:
        return 1 + _SCALE_BYTES / FP8_COLS
    return 0.5 + (2 + 1) / CODED_COLS


def decoded(tensor: CodedTensor) -> Floats:
    """All values of a coded tensor, [out, in], some rows at a time."""
    num_rows, cols = tensor.shape
    out = np.empty((num_rows, cols), np.float32)
    step = rows_at_a_time(cols, _DECODED_VALUES)
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        out[start:stop] = tensor.rows(start, stop).to_float32()
    return out


def rows_at_a_time(cols: int, num_values: int) -> int:
    """A multiple of 32 rows, 32 at least, that have about `num_values` values."""
    return max(num_values // (cols * _ROW_UNIT), 1) * _ROW_UNIT
