"""x·Wᵀ of few rows: bound by reading W, so W is spread over as many programs as read it fastest.

    W [N, K]    a program reads one tile of 64 outputs and one segment of columns
      │
      ▼
    sums [segments, rows, N] float32 ─► added in the order of segments ─► y [rows, N]

Where the whole of K is one segment, the first pass writes y. The bits are those of
`kernels.gpu.gemm`, however many rows there are: see `kernels.gpu.matrix_plan`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.gpu.device import has_e4m3
from kernels.gpu.products import dense_segment, finished
from kernels.gpu.triton_types import kernel, tl

if TYPE_CHECKING:
    from kernels.gpu.matrix_plan import MatrixPlan, TileLaunch

_SUM_BLOCK = 256  # outputs of a program that adds segments


@kernel(batch_dependent=("num_rows",))
def _segment_products(
    x_ptr: tl.tensor,  # [num_rows, num_in]
    w_ptr: tl.tensor,  # [num_out, num_in]
    x_scales_ptr: tl.tensor,  # [num_rows], or None
    w_scales_ptr: tl.tensor,  # [num_out], or [num_out, num_in / GROUP], or None
    bias_ptr: tl.tensor,  # [num_out], or None
    out_ptr: tl.tensor,  # [num_rows, num_out], or sums [segments, num_rows, num_out]
    num_rows: tl.tensor,
    num_out: tl.tensor,
    num_in: tl.tensor,
    segment: tl.tensor,
    x_stride: tl.tensor,
    w_stride: tl.tensor,
    SUM_TYPE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WHOLE: tl.constexpr,
    GROUP: tl.constexpr,
    HARDWARE: tl.constexpr,
    IS_SUM: tl.constexpr,  # whether out takes sums
) -> None:
    outputs = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    rows = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    # What is out of bounds reads the last one again, so that loads need no mask.
    near_outputs = tl.minimum(outputs, num_out - 1)
    near_rows = tl.minimum(rows, num_rows - 1)
    total = dense_segment(
        w_ptr + near_outputs.to(tl.int64)[:, None] * w_stride,
        x_ptr + near_rows.to(tl.int64)[None, :] * x_stride,
        w_scales_ptr + near_outputs * (num_in // GROUP) if GROUP else None,
        part * segment,
        tl.minimum((part + 1) * segment, num_in),
        tl.zeros([BLOCK_N, BLOCK_M], SUM_TYPE),
        BLOCK_K,
        WHOLE,
        GROUP,
        HARDWARE,
    )
    inside = (outputs < num_out)[:, None] & (rows < num_rows)[None, :]
    places = (part * num_rows + rows).to(tl.int64)[None, :] * num_out + outputs[:, None]
    if IS_SUM:
        tl.store(out_ptr + places, total, mask=inside)
    else:
        of_outputs = w_scales_ptr if GROUP == 0 else None
        y = finished(total, near_outputs, near_rows, x_scales_ptr, of_outputs, bias_ptr)
        tl.store(out_ptr + places, y.to(out_ptr.dtype.element_ty), mask=inside)


@kernel(batch_dependent=("num_rows",))
def _add_segments(
    sums_ptr: tl.tensor,  # [num_segments, num_rows, num_out]
    x_scales_ptr: tl.tensor,  # [num_rows], or None
    w_scales_ptr: tl.tensor,  # [num_out], or None
    bias_ptr: tl.tensor,  # [num_out], or None
    out_ptr: tl.tensor,  # [num_rows, num_out]
    num_rows: tl.tensor,
    num_out: tl.tensor,
    num_segments: tl.tensor,
    BLOCK_N: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    near_outputs = tl.minimum(outputs, num_out - 1)
    total = tl.zeros([BLOCK_N], sums_ptr.dtype.element_ty)
    places = row.to(tl.int64) * num_out + near_outputs
    for _ in range(num_segments):
        total += tl.load(sums_ptr + places)
        places += num_rows.to(tl.int64) * num_out
    y = finished(
        total[:, None], near_outputs, row + tl.arange(0, 1), x_scales_ptr, w_scales_ptr, bias_ptr
    )
    y = tl.reshape(y, [BLOCK_N]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row.to(tl.int64) * num_out + outputs, y, mask=outputs < num_out)


def launch_skinny(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    x_scales: torch.Tensor | None,
    w_scales: torch.Tensor | None,
    out: torch.Tensor,
    plan: MatrixPlan,
    tile: TileLaunch,
    group: int,
) -> None:
    """Writes the product to out [rows, num_out]; arguments as of `kernels.gpu.gemm.gemm`.

    Any number of rows, in tiles of `tile.rows`; with a group as of `kernels.gpu.gemm.w8a16`.
    """
    (num_rows, num_in), num_out = x.shape, weight.shape[0]
    sum_type = torch.int32 if x.dtype is torch.int8 else torch.float32
    in_segments = plan.num_segments > 1
    target = out
    if in_segments:
        shape = (plan.num_segments, num_rows, num_out)
        target = torch.empty(shape, dtype=sum_type, device=x.device)
    grid = (-(-num_out // tile.block_n), plan.num_segments, -(-num_rows // tile.rows))
    _segment_products[grid](
        x,
        weight,
        x_scales,
        w_scales,
        bias,
        target,
        num_rows,
        num_out,
        num_in,
        plan.segment,
        x.stride(0),
        weight.stride(0),
        SUM_TYPE=tl.int32 if sum_type is torch.int32 else tl.float32,
        BLOCK_N=tile.block_n,
        BLOCK_M=tile.rows,
        BLOCK_K=plan.block_k,
        WHOLE=num_in % plan.block_k == 0,
        GROUP=group,
        HARDWARE=has_e4m3(x.device),
        IS_SUM=in_segments,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    if in_segments:
        add_segments(target, bias, x_scales, None if group else w_scales, out)


def add_segments(
    sums: torch.Tensor,
    bias: torch.Tensor | None,
    x_scales: torch.Tensor | None,
    w_scales: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Adds sums [segments, rows, num_out] in order, and scales the result, into out."""
    num_segments, num_rows, num_out = sums.shape
    _add_segments[(num_rows, -(-num_out // _SUM_BLOCK))](
        sums,
        x_scales,
        w_scales,
        bias,
        out,
        num_rows,
        num_out,
        num_segments,
        BLOCK_N=_SUM_BLOCK,
        num_warps=2,
    )
