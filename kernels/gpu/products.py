"""What kernels of matrix products share: the sum over a segment, and what becomes of sums.

Tiles are [outputs, rows], W's side first; see `kernels.gpu.matrix_plan`.
"""

from __future__ import annotations

from kernels.gpu.e4m3 import decode_e4m3
from kernels.gpu.triton_types import kernel, tl


@kernel()
def dense_segment(
    w_rows: tl.tensor,  # [BLOCK_N, 1], where each row of W starts
    x_rows: tl.tensor,  # [1, BLOCK_M], where each row of x starts
    scales: tl.tensor,  # [BLOCK_N], where the scales of each row of W start; None without GROUP
    begin: tl.tensor,
    end: tl.tensor,
    total: tl.tensor,  # [BLOCK_N, BLOCK_M], zeros
    BLOCK_K: tl.constexpr,
    WHOLE: tl.constexpr,  # whether segments are whole blocks
    GROUP: tl.constexpr,  # columns that a scale is for, where W is bytes of e4m3 and x is not; or 0
    HARDWARE: tl.constexpr,  # as of `decode_e4m3`
) -> tl.tensor:
    """Adds W·xᵀ over the columns [begin, end)."""
    # Tensor cores sum e4m3 in fewer bits than float32: after each block a full addition follows.
    chain: tl.constexpr = BLOCK_K if x_rows.dtype.element_ty.primitive_bitwidth == 8 else None
    for start in range(begin, end, BLOCK_K):
        columns = start + tl.arange(0, BLOCK_K)
        if WHOLE:
            w = tl.load(w_rows + columns[None, :])
            x = tl.load(x_rows + columns[:, None])
        else:
            w = tl.load(w_rows + columns[None, :], mask=columns[None, :] < end, other=0.0)
            x = tl.load(x_rows + columns[:, None], mask=columns[:, None] < end, other=0.0)
        if GROUP:
            scale = tl.load(scales + start // GROUP)[:, None]
            # Rounded once, to what the matrix would be if it were decoded as a whole.
            w = (decode_e4m3(w, tl.float32, HARDWARE) * scale).to(x.dtype)
        total = tl.dot(
            w,
            x,
            total,
            input_precision="ieee",
            max_num_imprecise_acc=chain,
            out_dtype=total.dtype,
        )
    return total


@kernel()
def finished(
    total: tl.tensor,  # [BLOCK_N, BLOCK_M]
    outputs: tl.tensor,  # [BLOCK_N]
    rows: tl.tensor,  # [BLOCK_M]
    x_scales_ptr: tl.tensor,  # [num_rows], or None
    w_scales_ptr: tl.tensor,  # [num_out], or None
    bias_ptr: tl.tensor,  # [num_out], or None
) -> tl.tensor:
    """Float32 results of sums: scaled by the row's scale, then the output's, plus the bias.

    outputs and rows are within bounds.
    """
    y = total.to(tl.float32)
    if x_scales_ptr is not None:
        y *= tl.load(x_scales_ptr + rows)[None, :]
    if w_scales_ptr is not None:
        w_scale = tl.load(w_scales_ptr + outputs)[:, None]
        if bias_ptr is not None:
            y = tl.fma(y, w_scale, tl.load(bias_ptr + outputs).to(tl.float32)[:, None])
        else:
            y *= w_scale
    elif bias_ptr is not None:
        y += tl.load(bias_ptr + outputs).to(tl.float32)[:, None]
    return y
