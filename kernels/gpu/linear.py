"""A matrix as the GPU multiplies with it: the same bits for a row whatever is beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from kernels.coded import FP8, FP8_WEIGHTS, INT4
from kernels.gpu.fp8_linear import Fp8Linear, fp8_linear, multiplies_fp8
from kernels.gpu.gemm import gemm, prove_row_tiles
from kernels.gpu.matrix_plan import ROW_TILES
from kernels.gpu.quantization import RowFormat
from kernels.gpu.vendor_linear import VendorFp8Linear
from kernels.gpu.w4_layout import pack_w4
from kernels.gpu.w4a16 import GROUPS, W4Weight, w4a16
from kernels.reference.linear import DenseLinear

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernels.coded import CodedRows, CodedTensor


class TiledLinear(Protocol):
    """A matrix that is multiplied in tiles of rows."""

    shape: tuple[int, int]

    def use_row_tiles(self, row_tiles: tuple[int, ...]) -> None:
        """Multiplies in tiles of these numbers of rows only."""
        ...


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
        """As `TiledLinear`."""
        self._row_tiles = row_tiles


class W4Linear:
    """A matrix [out, in] of 4-bit codes with its bias [out], multiplied by `kernels.gpu.w4a16`."""

    def __init__(self, weight: W4Weight, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self._bias = bias
        self._row_tiles: tuple[int, ...] = ROW_TILES
        self.shape = (weight.num_out, weight.num_in)
        self.has_bias = bias is not None
        self.nbytes = weight.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x·Wᵀ + b, [rows, in] → [rows, out] in x's type."""
        return w4a16(x, self.weight, self._bias, row_tiles=self._row_tiles)

    def use_row_tiles(self, row_tiles: tuple[int, ...]) -> None:
        """As `TiledLinear`."""
        self._row_tiles = row_tiles


_TILED = (GpuLinear, W4Linear, Fp8Linear)


def coded_linear(
    tensors: Sequence[CodedTensor],
    bias: torch.Tensor | None,
    device: torch.device,
    dtype: torch.dtype,
    *,
    batch_invariant: bool = True,
) -> W4Linear | Fp8Linear:
    """Matrices of `kernels.coded.keeps_codes` stacked along their outputs, their codes kept.

    `dtype` is that of the rows to come. Unless rows must have equal bits in any batch, the vendor's
    library multiplies those that are rounded. Raises ValueError for scales or codes that are not
    finite, and where a file contradicts itself.
    """
    if tensors[0].scheme in (FP8, FP8_WEIGHTS):
        linear = fp8_linear(tensors, bias, device, rounds_rows=multiplies_fp8(device, dtype))
        by_vendor = linear.rounds_rows and not batch_invariant
        if by_vendor and VendorFp8Linear.takes(linear.shape):
            return VendorFp8Linear(linear.codes, linear.scales, bias, rounds_rows=True)
        return linear
    return _w4_linear(tensors, bias, device)


def _w4_linear(
    tensors: Sequence[CodedTensor], bias: torch.Tensor | None, device: torch.device
) -> W4Linear:
    parts = [tensor.rows(0, tensor.shape[0]) for tensor in tensors]
    num_in = tensors[0].shape[1]
    # Scales of wider groups, or of whole rows, are repeated.
    group = next(
        size
        for size in sorted(GROUPS, reverse=True)
        if all(num_in // part.scales.shape[1] % size == 0 for part in parts)
    )
    repeated = [_repeated(part.scales, num_in, group) for part in parts]
    scales = torch.from_numpy(np.concatenate(repeated))
    if not scales.isfinite().all():
        raise ValueError("a matrix of 4-bit codes has scales that are not finite")
    narrow = scales.half()
    zeros = None
    if any(tensor.scheme != INT4 for tensor in tensors):
        zeros = torch.from_numpy(np.concatenate([_zeros(part, num_in, group) for part in parts])).T
    weight = pack_w4(
        torch.from_numpy(np.concatenate([part.codes for part in parts])).to(device),
        # float16 is what these files have; wider ones of other tools keep their range in bfloat16.
        (narrow if narrow.isfinite().all() else scales.bfloat16()).T.to(device),
        None if zeros is None else zeros.to(device),
    )
    return W4Linear(weight, bias)


def _repeated(of_groups: np.ndarray, num_in: int, group: int) -> np.ndarray:
    """[rows, groups] as [rows, num_in / group]."""
    return np.repeat(of_groups, num_in // group // of_groups.shape[1], axis=1)


def _zeros(part: CodedRows, num_in: int, group: int) -> np.ndarray:
    if isinstance(part.zeros, int):
        return np.full((len(part.codes), num_in // group), part.zeros, np.uint8)
    return _repeated(part.zeros, num_in, group)


def prove_linears(linears: Iterable[object], dtype: torch.dtype, device: torch.device) -> None:
    """Has those matrices that have tiles use only such whose rows have equal bits on the device.

    Rows come in this dtype; those of matrices that round them are proved in float8.
    """
    by_type: dict[torch.dtype, list[TiledLinear]] = {}
    for linear in linears:
        if isinstance(linear, VendorFp8Linear) or not isinstance(linear, _TILED):
            continue
        rounded = isinstance(linear, Fp8Linear) and linear.rounds_rows
        by_type.setdefault(RowFormat.FP8.dtype if rounded else dtype, []).append(linear)
    for multiplied, alike in by_type.items():
        if device.type == "cpu":
            proved: tuple[int, ...] = ROW_TILES[:1]  # interpreted: one is equal to itself
        else:
            shapes = sorted({linear.shape for linear in alike})
            proved = prove_row_tiles(shapes, multiplied, device)
        for linear in alike:
            linear.use_row_tiles(proved)
