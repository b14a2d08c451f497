"""A matrix as the GPU multiplies with it: the same bits for a row whatever is beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.gpu.gemm import gemm, prove_row_tiles
from kernels.gpu.matrix_plan import ROW_TILES
from kernels.reference.linear import DenseLinear

if TYPE_CHECKING:
    from collections.abc import Iterable


class GpuLinear(DenseLinear):
    """A dense matrix [out, in] with its bias [out], multiplied by `kernels.gpu.gemm`."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight, bias)
        self._row_tiles: tuple[int, ...] = ROW_TILES

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x·Wᵀ + b, [rows, in] → [rows, out] in x's type."""
        return gemm(x, self.weight, self._bias, row_tiles=self._row_tiles)

    def float32(self, x: torch.Tensor) -> torch.Tensor:
        """The same product, not rounded to x's type."""
        return gemm(x, self.weight, self._bias, out_dtype=torch.float32, row_tiles=self._row_tiles)

    def use_row_tiles(self, row_tiles: tuple[int, ...]) -> None:
        """Multiplies in tiles of these numbers of rows only."""
        self._row_tiles = row_tiles


def prove_linears(linears: Iterable[GpuLinear]) -> None:
    """Has matrices use only tiles whose rows have equal bits on their device."""
    linears = list(linears)
    weight = linears[0].weight
    if weight.device.type == "cpu":
        proved: tuple[int, ...] = ROW_TILES[:1]  # interpreted: one is equal to itself
    else:
        shapes = sorted({linear.shape for linear in linears})
        proved = prove_row_tiles(shapes, weight.dtype, weight.device)
    for linear in linears:
        linear.use_row_tiles(proved)
