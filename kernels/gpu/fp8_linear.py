"""A matrix of e4m3 codes as a GPU multiplies with it.

    rounded rows    x ─► codes, a scale for each row ─┐
                    W codes, a scale for each output ─┴─► products of float8, scaled at the end
    whole rows      x in 16 bits or 32 ───────────────┐
                    W codes times their scales ───────┴─► products of x's type

Rows are rounded where the file means them to be (W8A8) and the device multiplies float8. Scales of
activations that a file may have are not used: each row gets its own, of its own largest value, at
least as exact as one for all. Elsewhere, and where scales are for groups of columns, W is decoded
a tile at a time as it is read, into the numbers that it would have if it were kept decoded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.coded import FP8
from kernels.gpu.device import has_e4m3
from kernels.gpu.gemm import gemm, w8a16
from kernels.gpu.matrix_plan import ROW_TILES
from kernels.gpu.quantization import RowFormat, quantise_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernels.coded import CodedRows, CodedTensor, Floats

_NAN = 0x7F  # beside the sign
_CHECKED_AT_A_TIME = 1 << 26  # bytes


class Fp8Linear:
    """A matrix [out, in] of e4m3 codes with its bias [out]."""

    def __init__(
        self,
        codes: torch.Tensor,
        scales: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        rounds_rows: bool,
    ) -> None:
        """Codes are float8_e4m3fn [out, in], scales float32 [out, groups], one where rows round."""
        self.codes = codes
        self.scales = scales
        self.rounds_rows = rounds_rows
        self._bias = bias
        self._row_tiles: tuple[int, ...] = ROW_TILES
        self.shape = (codes.shape[0], codes.shape[1])
        self.has_bias = bias is not None
        self.nbytes = codes.nbytes + scales.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x·Wᵀ + b, [rows, in] → [rows, out] in x's type."""
        return self._product(x, x.dtype)

    def float32(self, x: torch.Tensor) -> torch.Tensor:
        """The same product, not rounded to x's type."""
        return self._product(x, torch.float32)

    def use_row_tiles(self, row_tiles: tuple[int, ...]) -> None:
        """As `kernels.gpu.linear.TiledLinear`."""
        self._row_tiles = row_tiles

    def _product(self, x: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        if not self.rounds_rows:
            return w8a16(
                x,
                self.codes,
                self.scales,
                self._bias,
                out_dtype=out_dtype,
                row_tiles=self._row_tiles,
            )
        rows = quantise_rows(x, RowFormat.FP8)
        return gemm(
            rows.codes,
            self.codes,
            self._bias,
            x_scales=rows.scales,
            w_scales=self.scales[:, 0],
            out_dtype=out_dtype,
            row_tiles=self._row_tiles,
        )


def multiplies_fp8(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether rows of a type are rounded for products of float8: not those of float32.

    Who asks for float32 wants the values that the file means. The interpreter can do all.
    """
    return dtype.itemsize == 2 and (device.type == "cpu" or has_e4m3(device))


def fp8_linear(
    tensors: Sequence[CodedTensor],
    bias: torch.Tensor | None,
    device: torch.device,
    *,
    rounds_rows: bool,
) -> Fp8Linear:
    """Matrices of the schemes FP8 and FP8_WEIGHTS, stacked along their outputs.

    Rows are rounded only if all matrices are FP8. Raises ValueError for codes or scales that are
    not finite, and where a file contradicts itself.
    """
    parts = [tensor.rows(0, tensor.shape[0]) for tensor in tensors]
    groups = math.lcm(*(part.scales.shape[1] for part in parts))
    scales = torch.from_numpy(np.concatenate([_repeated(part, groups) for part in parts]))
    if not scales.isfinite().all():
        raise ValueError("scales of fp8 are not finite")
    codes = torch.from_numpy(np.concatenate([part.codes for part in parts])).to(device)
    for some in torch.split(codes, max(_CHECKED_AT_A_TIME // codes.shape[1], 1)):
        if bool(((some & _NAN) == _NAN).any()):
            raise ValueError("fp8 codes are not finite")
    return Fp8Linear(
        codes.view(torch.float8_e4m3fn),
        scales.to(device),
        bias,
        rounds_rows=rounds_rows and all(tensor.scheme == FP8 for tensor in tensors),
    )


def _repeated(part: CodedRows, groups: int) -> Floats:
    """Scales [rows, groups]."""
    return np.repeat(part.scales, groups // part.scales.shape[1], axis=1)
