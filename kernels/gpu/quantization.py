"""Rows of activations as 8-bit codes with one scale a row, as matrix products take them.

    scale = max |x| / limit          code = round(x · (limit / max |x|))          x ≈ scale · code

All of it is float32; rounding is to the nearest, ties to even. limit is 127 for int8, and 448, the
largest finite number, for e4m3 (Micikevicius et al., arXiv:2209.05433). A row with a NaN or an
infinity gets a scale of NaN, so that the fault shows in whatever is computed from it; a row of
zeros has scale 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch

from kernels.gpu.e4m3 import encode_e4m3
from kernels.gpu.triton_types import kernel, next_power_of_2, tl

WHOLE_ROW = 16_384  # values of a row that one block holds; of longer ones registers would spill
LONG_BLOCK = 4096


class RowFormat(StrEnum):
    """What a row's codes are."""

    INT8 = "int8"
    FP8 = "fp8_e4m3"

    @property
    def dtype(self) -> torch.dtype:
        """Of the codes."""
        return torch.int8 if self is RowFormat.INT8 else torch.float8_e4m3fn


@dataclass(frozen=True, slots=True)
class QuantisedRows:
    """Rows [rows, size] as codes with a scale each."""

    codes: torch.Tensor  # [rows, size] int8 or float8_e4m3fn
    scales: torch.Tensor  # [rows] float32

    @classmethod
    def empty(cls, rows: int, size: int, format_: RowFormat, device: torch.device) -> QuantisedRows:
        """Room for rows that a kernel is to write."""
        return cls(
            torch.empty(rows, size, dtype=format_.dtype, device=device),
            torch.empty(rows, dtype=torch.float32, device=device),
        )

    @property
    def stored(self) -> torch.Tensor:
        """The codes as kernels write them: those of e4m3 as uint8, which every device knows."""
        return self.codes if self.codes.dtype is torch.int8 else self.codes.view(torch.uint8)

    def dequantise(self) -> torch.Tensor:
        """The values that they stand for, [rows, size] float32."""
        return self.codes.float() * self.scales[:, None]


@kernel()
def row_scale(largest: tl.tensor, faults: tl.tensor, codes_ptr: tl.tensor) -> tl.tensor:
    """A row's scale and what its values are multiplied with, of its largest magnitude.

    `faults` is NaN for a row with a value that is not finite, else 0.
    """
    limit = 127.0 if codes_ptr.dtype.element_ty == tl.int8 else 448.0
    scale = tl.div_rn(largest, limit) + faults
    some = largest > 0.0
    inverse = tl.where(some, tl.div_rn(limit, tl.where(some, largest, 1.0)), 0.0)
    return scale, inverse


@kernel()
def to_codes(x: tl.tensor, inverse: tl.tensor, codes_ptr: tl.tensor) -> tl.tensor:
    """Codes of float32 x: int8, or the bytes of e4m3 where the array at codes_ptr is uint8."""
    if codes_ptr.dtype.element_ty == tl.int8:
        # The clamp keeps the product and the sum from being fused, which would round differently.
        scaled = tl.clamp(x * inverse, -127.0, 127.0)
        rounded = (scaled + 12582912.0) - 12582912.0  # 1.5 · 2^23: what is left are integers
        codes = rounded.to(tl.int8)
    else:
        codes = encode_e4m3(x * inverse)
    return codes


@kernel()
def _quantise_rows(
    x_ptr: tl.tensor,  # [rows, size]
    codes_ptr: tl.tensor,  # [rows, size], int8 or uint8
    scales_ptr: tl.tensor,  # [rows]
    x_stride: tl.tensor,
    size: tl.tensor,
    SIZE_BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, SIZE_BLOCK)
    inside = columns < size
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale, inverse = row_scale(tl.max(tl.abs(x), 0), tl.sum(x * 0.0, 0), codes_ptr)
    tl.store(scales_ptr + row, scale)
    tl.store(codes_ptr + row * size + columns, to_codes(x, inverse, codes_ptr), mask=inside)


@kernel()
def _quantise_long_rows(
    x_ptr: tl.tensor,  # [rows, size]
    codes_ptr: tl.tensor,  # [rows, size], int8 or uint8
    scales_ptr: tl.tensor,  # [rows]
    x_stride: tl.tensor,
    size: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    largest = tl.zeros([BLOCK], tl.float32)
    faults = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < size
        x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(x))
        faults += x * 0.0
    scale, inverse = row_scale(tl.max(largest, 0), tl.sum(faults, 0), codes_ptr)
    tl.store(scales_ptr + row, scale)
    for start in range(0, size, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < size
        x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(codes_ptr + row * size + columns, to_codes(x, inverse, codes_ptr), mask=inside)


def row_warps(size: int) -> int:
    """Warps for a row that is one block: a function of the model, so that rows keep their bits."""
    return min(max(next_power_of_2(size) // 512, 1), 16)


def quantise_rows(x: torch.Tensor, format_: RowFormat) -> QuantisedRows:
    """Codes and scales of x [rows, size]; see the module.

    Raises ValueError if the columns of x are not adjacent.
    """
    require_rows(x)
    rows, size = x.shape
    out = QuantisedRows.empty(rows, size, format_, x.device)
    if rows and size > WHOLE_ROW:
        _quantise_long_rows[(rows,)](
            x, out.stored, out.scales, x.stride(0), size, BLOCK=LONG_BLOCK, num_warps=8
        )
    elif rows:
        _quantise_rows[(rows,)](
            x,
            out.stored,
            out.scales,
            x.stride(0),
            size,
            SIZE_BLOCK=next_power_of_2(size),
            num_warps=row_warps(size),
        )
    return out


def require_rows(*arrays: torch.Tensor) -> None:
    """Raises ValueError for an array that is not [rows, size] with adjacent columns."""
    for x in arrays:
        if x.ndim != 2 or (x.shape[1] > 1 and x.stride(1) != 1):
            raise ValueError(f"not rows of adjacent columns: {list(x.shape)}, strides {x.stride()}")
