"""Weights in fp8, E4M3 without infinities: w = value · scale.

    weight                             [out, in]
    weight_scale or weight_scale_inv   one, [out, 1], [out, groups], or [out / rows, in / cols] of
                                       blocks, rounded up; a factor under either name

E4M3: arXiv 2209.05433. Scales of blocks: DeepSeek-V3 (arXiv 2412.19437).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.loader.quantized.linear import Expected, columns_of_groups
from kernels.coded import FP8, FP8_COLS, FP8_WEIGHTS, CodedRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_svc.loader.quantized.linear import Part
    from kernels.coded import Floats


def _e4m3_levels() -> Floats:
    """What each byte stands for: sign, 4 bits of exponent with bias 7, 3 bits of mantissa."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, (codes & 7) / 8
    normal = (1 + mantissa) * 2.0 ** (exponent - 7)
    magnitude = np.where(exponent == 0, mantissa * 2.0**-6, normal)
    magnitude[codes & 127 == 127] = np.nan
    return np.where(codes >> 7, -magnitude, magnitude).astype(np.float32)


LEVELS = _e4m3_levels()


@dataclass(frozen=True, slots=True)
class Fp8Linear:
    """A matrix in fp8.

    `block` is the rows and columns that a scale is for, where 0 has all of them; (0, 0) may have
    a scale for each output instead, which the tensor's shape tells. `weights_only`: activations
    are meant to stay as they are.
    """

    block: tuple[int, int]
    weights_only: bool = False

    @property
    def label(self) -> str:
        """For people."""
        rows, cols = self.block
        if self.block == (0, 0):
            return "fp8, a scale for each matrix or output"
        if rows == 1:
            return f"fp8, {f'groups of {cols}' if cols else 'a scale for each output'}"
        return f"fp8, blocks of {rows} by {cols}"

    codes = "weight"

    def problem(self, shape: tuple[int, int]) -> str | None:  # noqa: ARG002 (fits every one)
        """As `LinearFormat`."""
        return None

    def tensors(self, shape: tuple[int, int]) -> Mapping[str, Expected]:
        """As `LinearFormat`."""
        rows, cols = self._grid(shape)
        shapes: tuple[tuple[int, ...], ...] = ((rows, cols),)
        if self.block == (0, 0):
            shapes = (1,), (), (1, 1), (shape[0], 1), (shape[0],)
        elif cols == 1:
            shapes = (rows, 1), (rows,)
        scale = Expected(("F32", "BF16", "F16"), shapes, other_name="weight_scale_inv")
        return {"weight": Expected(("F8_E4M3",), (shape,)), "weight_scale": scale}

    def _grid(self, shape: tuple[int, int]) -> tuple[int, int]:
        rows, cols = (
            -(-count // size) if size else 1 for count, size in zip(shape, self.block, strict=True)
        )
        return rows, cols

    def scheme(self, shape: tuple[int, int]) -> str:
        """As `LinearFormat`."""
        cols, group = shape[1], self.block[1]
        if self._grid(shape)[1] == 1:
            return FP8_WEIGHTS if self.weights_only else FP8
        return "F8_E4M3 with scattered scales" if cols % group or group % FP8_COLS else FP8_WEIGHTS

    def rows(
        self, parts: Mapping[str, Part], shape: tuple[int, int], start: int, stop: int
    ) -> CodedRows:
        """As `LinearFormat`."""
        scales = parts["weight_scale"].floats()
        size, cols = self.block
        grid = scales.reshape(-1, self._grid(shape)[1])
        row_of = np.arange(start, stop) // (size or -(-shape[0] // len(grid)))
        return CodedRows(
            codes=parts["weight"].data.reshape(shape)[start:stop],
            scales=grid[row_of],
            zeros=0,
            groups=columns_of_groups(shape[1], cols) if grid.shape[1] > 1 else None,
            levels=LEVELS,
        )
