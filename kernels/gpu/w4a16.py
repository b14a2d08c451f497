"""x·Wᵀ + b with weights of 4 bits, that become 16-bit numbers in registers.

    w = (code - zero) · scale, rounded once to x's type          code 0 … 15, a zero and scale for
                                                                 each output and group of columns

AWQ (Lin et al., arXiv:2306.00978) and GPTQ (Frantar et al., arXiv:2210.17323) store such numbers in
layouts of their own; `kernels.gpu.w4_layout` brings both into this one, in which a tile is adjacent
bytes and every byte falls apart into the halves of a tile:

    codes   [ceil(N / 64), K / 64, 64, 32] uint8     byte [i, u, r, j] has, of output 64·i + r,
                                                     column 64·u + j in its low four bits and
                                                     column 64·u + 32 + j in its high four
    scales  [K / group, N]                           float16 or bfloat16
    zeros   [K / group, N] uint8                     None: all 8
    order   [K] int32                                None, or the column of x that each column of W
                                                     meets (GPTQ's "act-order")

The order of sums is that of `kernels.gpu.gemm` over the same weights written out: equal bits where
instructions are, and as independent of the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.gpu.gemm import tile_of
from kernels.gpu.matrix_plan import ROW_TILES, SKINNY_ROWS, matrix_plan, tile_launch
from kernels.gpu.products import finished
from kernels.gpu.skinny_gemm import add_segments
from kernels.gpu.triton_types import constexpr, kernel, tl

UNIT = 64  # columns, and outputs, of a tile of codes
HALF = 32
GROUPS = (32, 64, 128)
_UNIT = constexpr(UNIT)
_HALF = constexpr(HALF)
_TILE_GROUP = 8


@dataclass(frozen=True, slots=True)
class W4Weight:
    """A matrix [num_out, num_in] of 4-bit codes; see the module."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    order: torch.Tensor | None
    num_out: int
    num_in: int

    @property
    def group(self) -> int:
        """Columns that share a scale."""
        return self.num_in // self.scales.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        parts = (self.codes, self.scales, self.zeros, self.order)
        return sum(part.nbytes for part in parts if part is not None)


@kernel()
def _half_tile(
    codes: tl.tensor,  # [BLOCK_N, HALF] int32, 0 … 15
    scales_ptr: tl.tensor,  # at the outputs' first group, [BLOCK_N]
    zeros_ptr: tl.tensor,  # likewise, or None
    group: tl.tensor,
    num_out: tl.tensor,
    DTYPE: tl.constexpr,
) -> tl.tensor:
    """Weights [BLOCK_N, HALF] of columns that lie in one group."""
    place = group * num_out
    scale = tl.load(scales_ptr + place).to(tl.float32)
    # In the lowest bits of 2^23 a code is that much more than 2^23: no conversion is needed, and
    # the difference is exact.
    if zeros_ptr is not None:
        offset = tl.load(zeros_ptr + place).to(tl.float32) + 8388608.0
        shifted = (codes | 0x4B000000).to(tl.float32, bitcast=True) - offset[:, None]
    else:
        shifted = (codes | 0x4B000000).to(tl.float32, bitcast=True) - 8388616.0
    return (shifted * scale[:, None]).to(DTYPE)


@kernel()
def _packed_segment(
    codes: tl.tensor,  # [BLOCK_N, HALF], where the first unit of each output starts
    scales_ptr: tl.tensor,  # [BLOCK_N]
    zeros_ptr: tl.tensor,  # [BLOCK_N], or None
    order_ptr: tl.tensor,  # [num_in], or None
    x_rows: tl.tensor,  # [1, BLOCK_M], where each row of x starts
    begin: tl.tensor,
    end: tl.tensor,
    total: tl.tensor,  # [BLOCK_N, BLOCK_M], zeros
    num_out: tl.tensor,
    GROUP: tl.constexpr,
) -> tl.tensor:
    """Adds W·xᵀ over the columns [begin, end), both multiples of UNIT."""
    dtype: tl.constexpr = x_rows.dtype.element_ty
    for start in range(begin, end, _UNIT):
        packed = tl.load(codes + start // _UNIT * (_UNIT * _HALF)).to(tl.int32)
        columns = start + tl.arange(0, _HALF)
        if order_ptr is not None:
            x_low = tl.load(x_rows + tl.load(order_ptr + columns)[:, None])
            x_high = tl.load(x_rows + tl.load(order_ptr + columns + _HALF)[:, None])
        else:
            x_low = tl.load(x_rows + columns[:, None])
            x_high = tl.load(x_rows + columns[:, None] + _HALF)
        low = _half_tile(packed & 15, scales_ptr, zeros_ptr, start // GROUP, num_out, dtype)
        total = tl.dot(low, x_low, total, input_precision="ieee")
        group = (start + _HALF) // GROUP
        high = _half_tile(packed >> 4, scales_ptr, zeros_ptr, group, num_out, dtype)
        total = tl.dot(high, x_high, total, input_precision="ieee")
    return total


@kernel(batch_dependent=("num_rows",))
def _w4a16(
    x_ptr: tl.tensor,  # [num_rows, num_in]
    codes_ptr: tl.tensor,
    scales_ptr: tl.tensor,  # [num_in / GROUP, num_out]
    zeros_ptr: tl.tensor,  # [num_in / GROUP, num_out], or None
    order_ptr: tl.tensor,  # [num_in], or None
    bias_ptr: tl.tensor,  # [num_out], or None
    out_ptr: tl.tensor,  # [num_rows, num_out], or sums [segments, num_rows, num_out]
    num_rows: tl.tensor,
    num_out: tl.tensor,
    num_in: tl.tensor,
    segment: tl.tensor,
    x_stride: tl.tensor,
    GROUP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    NUM_SEGMENTS: tl.constexpr,
    SPLIT: tl.constexpr,  # whether each program has one segment
    TILE_GROUP: tl.constexpr,
) -> None:
    tile_n, tile_m = tile_of(
        tl.program_id(0), tl.cdiv(num_out, BLOCK_N), tl.cdiv(num_rows, BLOCK_M), TILE_GROUP
    )
    outputs = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    # What is out of bounds reads the last one again, so that loads need no mask.
    near_outputs = tl.minimum(outputs, num_out - 1)
    near_rows = tl.minimum(rows, num_rows - 1)
    x_rows = x_ptr + near_rows.to(tl.int64)[None, :] * x_stride
    block = (near_outputs // _UNIT).to(tl.int64) * (num_in // _UNIT) * (_UNIT * _HALF)
    starts = block + near_outputs % _UNIT * _HALF
    codes = codes_ptr + starts[:, None] + tl.arange(0, _HALF)[None, :]
    scales = scales_ptr + near_outputs
    zeros = None if zeros_ptr is None else zeros_ptr + near_outputs
    inside = (outputs < num_out)[:, None] & (rows < num_rows)[None, :]
    places = rows.to(tl.int64)[None, :] * num_out + outputs[:, None]
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    if SPLIT:
        part = tl.program_id(1)
        begin = part * segment
        end = tl.minimum(begin + segment, num_in)
        total = _packed_segment(
            codes, scales, zeros, order_ptr, x_rows, begin, end, total, num_out, GROUP
        )
        places += part.to(tl.int64) * num_rows * num_out
        tl.store(out_ptr + places, total, mask=inside)
    else:
        if NUM_SEGMENTS == 1:
            total = _packed_segment(
                codes, scales, zeros, order_ptr, x_rows, 0, num_in, total, num_out, GROUP
            )
        else:
            for begin in range(0, num_in, segment):
                end = tl.minimum(begin + segment, num_in)
                part = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
                total += _packed_segment(
                    codes, scales, zeros, order_ptr, x_rows, begin, end, part, num_out, GROUP
                )
        y = finished(total, near_outputs, near_rows, None, None, bias_ptr)
        tl.store(out_ptr + places, y.to(out_ptr.dtype.element_ty), mask=inside)


def w4a16(
    x: torch.Tensor,
    weight: W4Weight,
    bias: torch.Tensor | None = None,
    *,
    row_tiles: tuple[int, ...] = ROW_TILES,
) -> torch.Tensor:
    """x·Wᵀ + b: x [rows, num_in] → [rows, num_out] in x's type; bias [num_out].

    row_tiles as of `kernels.gpu.gemm.gemm`. Raises ValueError for what does not fit.
    """
    num_rows, num_in = x.shape
    num_out = weight.num_out
    if num_in != weight.num_in or x.stride(1) != 1:
        raise ValueError(f"x {list(x.shape)}, strides {x.stride()}, for {weight.num_in} columns")
    if bias is not None and (bias.shape != (num_out,) or not bias.is_contiguous()):
        raise ValueError(f"bias has shape {list(bias.shape)}, {num_out} are needed")
    out = torch.empty(num_rows, num_out, dtype=x.dtype, device=x.device)
    if num_rows == 0:
        return out
    plan = matrix_plan(num_out, num_in, torch.float16)
    tile = tile_launch(num_rows, row_tiles)
    split = plan.num_segments > 1 and tile.rows <= SKINNY_ROWS
    target = out
    if split:
        target = torch.empty(
            plan.num_segments, num_rows, num_out, dtype=torch.float32, device=x.device
        )
    tiles = -(-num_rows // tile.rows) * -(-num_out // tile.block_n)
    _w4a16[(tiles, plan.num_segments if split else 1)](
        x,
        weight.codes,
        weight.scales,
        weight.zeros,
        weight.order,
        bias,
        target,
        num_rows,
        num_out,
        num_in,
        plan.segment,
        x.stride(0),
        GROUP=weight.group,
        BLOCK_N=tile.block_n,
        BLOCK_M=tile.rows,
        NUM_SEGMENTS=plan.num_segments,
        SPLIT=split,
        TILE_GROUP=_TILE_GROUP,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    if split:
        add_segments(target, bias, None, None, out)
    return out
