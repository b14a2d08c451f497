"""Root-mean-square norms of rows, alone or with what stands around them in a decoder's layer.

    x ─► norm(x) · scale ─► h                             rms_norm
    x, r ─► r += x ─► norm(r) · scale ─► h                add_rms_norm: r is the residual stream
    x, r ─► r += norm(x) · post ─► norm(r) · scale ─► h   add_rms_norm with `post` (Gemma)

h is in x's type, or 8-bit codes with a scale a row (`kernels.gpu.quantization`), which saves
writing and reading it once more. The definition is `kernels.reference.rms_norm`, with scales in the
form of its `norm_scale`: float32 ones (of models that add an offset) multiply before the result is
rounded to x's type, others after. What is added to the residual stream, and the sum, are rounded to
its type, as they are when each operation is by itself.

One program takes one row, in one block: a row's bits depend on that row alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.gpu.quantization import (
    QuantisedRows,
    require_rows,
    row_scale,
    row_warps,
    to_codes,
)
from kernels.gpu.triton_types import kernel, next_power_of_2, tl

if TYPE_CHECKING:
    from kernels.gpu.quantization import RowFormat


@kernel()
def _normed(
    x: tl.tensor,
    scale_ptr: tl.tensor,
    columns: tl.tensor,
    inside: tl.tensor,
    size: tl.tensor,
    eps: tl.tensor,
    DTYPE: tl.constexpr,
) -> tl.tensor:
    """norm(x) · scale of a float32 row, rounded to DTYPE and back."""
    scale = tl.load(scale_ptr + columns, mask=inside, other=0.0)
    normed = x * tl.rsqrt(tl.sum(x * x, 0) / size + eps)
    # Two significands of 8 or 11 bits have an exact product in float32: it is rounded once.
    product = normed.to(scale.dtype).to(tl.float32) * scale.to(tl.float32)
    return product.to(scale.dtype).to(DTYPE).to(tl.float32)


@kernel()
def _rms_norm(
    x_ptr: tl.tensor,  # [rows, size]
    residual_ptr: tl.tensor,  # [rows, size], or None
    post_ptr: tl.tensor,  # [size], or None
    scale_ptr: tl.tensor,  # [size]
    out_ptr: tl.tensor,  # [rows, size]
    scales_ptr: tl.tensor,  # [rows], or None: then out is in x's type
    x_stride: tl.tensor,
    residual_stride: tl.tensor,
    size: tl.tensor,
    eps: tl.tensor,
    SIZE_BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, SIZE_BLOCK)
    inside = columns < size
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        if post_ptr is not None:
            x = _normed(x, post_ptr, columns, inside, size, eps, dtype)
        at = residual_ptr + row * residual_stride + columns
        total = (tl.load(at, mask=inside, other=0.0).to(tl.float32) + x).to(dtype)
        tl.store(at, total, mask=inside)
        x = total.to(tl.float32)
    y = _normed(x, scale_ptr, columns, inside, size, eps, dtype)
    out = out_ptr + row * size + columns
    if scales_ptr is not None:
        scale, inverse = row_scale(tl.max(tl.abs(y), 0), tl.sum(y * 0.0, 0), out_ptr)
        tl.store(scales_ptr + row, scale)
        tl.store(out, to_codes(y, inverse, out_ptr), mask=inside)
    else:
        tl.store(out, y.to(dtype), mask=inside)


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    post: torch.Tensor | None,
    scale: torch.Tensor,
    eps: float,
    out: torch.Tensor,
    scales: torch.Tensor | None,
) -> None:
    require_rows(x, *(() if residual is None else (residual,)))
    rows, size = x.shape
    for weight in (scale, post):
        if weight is not None and (weight.shape != (size,) or not weight.is_contiguous()):
            raise ValueError(f"a scale of shape {list(weight.shape)} for rows of {size}")
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise ValueError(
            f"a residual {list(residual.shape)} of {residual.dtype} for {x.dtype} rows"
        )
    if rows:
        _rms_norm[(rows,)](
            x,
            residual,
            post,
            scale,
            out,
            scales,
            x.stride(0),
            0 if residual is None else residual.stride(0),
            size,
            eps,
            SIZE_BLOCK=next_power_of_2(size),
            num_warps=row_warps(size),
        )


def rms_norm(x: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    """norm(x) · scale: x [rows, size], scale [size] → [rows, size] in x's type.

    Raises ValueError for shapes or layouts that do not fit, as all functions here do.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, None, None, scale, eps, out, None)
    return out


def rms_norm_quantised(
    x: torch.Tensor, scale: torch.Tensor, eps: float, format_: RowFormat
) -> QuantisedRows:
    """`rms_norm`, then `quantise_rows`: the same bits in one pass."""
    out = QuantisedRows.empty(x.shape[0], x.shape[1], format_, x.device)
    _launch(x, None, None, scale, eps, out.stored, out.scales)
    return out


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
    post: torch.Tensor | None = None,
) -> torch.Tensor:
    """Adds x, normed by `post` [size] if given, to `residual` in place; returns its norm · scale.

    x and residual are [rows, size] of one type.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, residual, post, scale, eps, out, None)
    return out


def add_rms_norm_quantised(
    x: torch.Tensor,
    residual: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
    format_: RowFormat,
    post: torch.Tensor | None = None,
) -> QuantisedRows:
    """`add_rms_norm`, then `quantise_rows`: the same bits in one pass."""
    out = QuantisedRows.empty(x.shape[0], x.shape[1], format_, x.device)
    _launch(x, residual, post, scale, eps, out.stored, out.scales)
    return out
