"""Matrix products by the vendor's libraries, as torch has them: often faster, in no promised order.

cuBLAS picks a kernel by the number of rows, and with it how a row is summed: the last bits of an
answer may depend on who is beside it. This is for those who would rather have the speed.
"""

from __future__ import annotations

import torch

from kernels.gpu.fp8_linear import Fp8Linear
from kernels.gpu.quantization import RowFormat, quantise_rows
from kernels.reference.linear import DenseLinear

_ALIGNMENT = 16  # of both sides of a matrix in float8


class VendorLinear(DenseLinear):
    """A dense matrix [out, in] with its bias [out], multiplied by cuBLAS."""

    def float32(self, x: torch.Tensor) -> torch.Tensor:
        """x·Wᵀ + b as `__call__`, not rounded to x's type."""
        if x.is_cuda and x.dtype != torch.float32:
            y = torch.mm(x, self.weight.T, out_dtype=torch.float32)
        else:
            y = torch.mm(x.float(), self.weight.T.float())
        return y if self._bias is None else y.add_(self._bias)


class VendorFp8Linear(Fp8Linear):
    """A matrix [out, in] of e4m3 codes, a scale an output, by which rounded rows are multiplied.

    Products are rounded to bfloat16 before the bias is added, whatever type is asked for.
    """

    @staticmethod
    def takes(shape: tuple[int, int]) -> bool:
        """Whether the library multiplies with a matrix [out, in] of this shape."""
        return not any(size % _ALIGNMENT for size in shape)

    def _product(self, x: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        rows = quantise_rows(x, RowFormat.FP8)
        y = torch._scaled_mm(  # noqa: SLF001 (torch exports it under this name only)
            rows.codes,
            self.codes.T,
            scale_a=rows.scales[:, None],
            scale_b=self.scales.T,
            out_dtype=torch.bfloat16,
        ).to(out_dtype)
        return y if self._bias is None else y.add_(self._bias)
