"""x·Wᵀ + b such that a row of the result depends on that row of x alone, bit for bit.

    float32, float16, bfloat16    y = Σ x·w + b
    int8, e4m3                    y = (Σ x·w) · x_scale[row] · w_scale[output] + b
    the first, and W in e4m3      y = Σ x·w' + b, w' = w · w_scale[output, group] in x's type

Sums are float32 (int32 for int8), and rounded once, at the end. What makes the bits independent of
the number of rows, and why torch.mm has no such bits, is in `kernels.gpu.matrix_plan`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.gpu.device import has_e4m3
from kernels.gpu.matrix_plan import (
    CODES_GROUP,
    ROW_TILES,
    SKINNY_ROWS,
    matrix_plan,
    tile_launch,
)
from kernels.gpu.products import dense_segment, finished
from kernels.gpu.skinny_gemm import launch_skinny
from kernels.gpu.triton_types import kernel, tl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernels.gpu.matrix_plan import MatrixPlan, TileLaunch

_TILE_GROUP = 8  # tiles of rows that take turns on the same tiles of W, for the sake of the cache
_PROOF_OUTPUTS = 256


@kernel(batch_dependent=("num_rows",))
def _gemm(
    x_ptr: tl.tensor,  # [num_rows, num_in]
    w_ptr: tl.tensor,  # [num_out, num_in]
    x_scales_ptr: tl.tensor,  # [num_rows], or None
    w_scales_ptr: tl.tensor,  # [num_out], or [num_out, num_in / GROUP], or None
    bias_ptr: tl.tensor,  # [num_out], or None
    out_ptr: tl.tensor,  # [num_rows, num_out]
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
    NUM_SEGMENTS: tl.constexpr,
    WHOLE: tl.constexpr,
    GROUP: tl.constexpr,
    HARDWARE: tl.constexpr,
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
    w_rows = w_ptr + near_outputs.to(tl.int64)[:, None] * w_stride
    x_rows = x_ptr + near_rows.to(tl.int64)[None, :] * x_stride
    scales = w_scales_ptr + near_outputs * (num_in // GROUP) if GROUP else None
    total = tl.zeros([BLOCK_N, BLOCK_M], SUM_TYPE)
    if NUM_SEGMENTS == 1:
        total = dense_segment(
            w_rows, x_rows, scales, 0, num_in, total, BLOCK_K, WHOLE, GROUP, HARDWARE
        )
    else:
        for begin in range(0, num_in, segment):
            end = tl.minimum(begin + segment, num_in)
            zeros = tl.zeros([BLOCK_N, BLOCK_M], SUM_TYPE)
            total += dense_segment(
                w_rows, x_rows, scales, begin, end, zeros, BLOCK_K, WHOLE, GROUP, HARDWARE
            )
    of_outputs = w_scales_ptr if GROUP == 0 else None
    y = finished(total, near_outputs, near_rows, x_scales_ptr, of_outputs, bias_ptr)
    tl.store(
        out_ptr + rows.to(tl.int64)[None, :] * num_out + outputs[:, None],
        y.to(out_ptr.dtype.element_ty),
        mask=(outputs < num_out)[:, None] & (rows < num_rows)[None, :],
    )


@kernel()
def tile_of(
    program: tl.tensor, tiles_n: tl.tensor, tiles_m: tl.tensor, TILE_GROUP: tl.constexpr
) -> tl.tensor:
    """Which tile a program takes: TILE_GROUP tiles of rows go together along all tiles of W."""
    group = program // (TILE_GROUP * tiles_n)
    first = group * TILE_GROUP
    size = tl.minimum(tiles_m - first, TILE_GROUP)
    within = program % (TILE_GROUP * tiles_n)
    return within // size, first + within % size


def gemm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    x_scales: torch.Tensor | None = None,
    w_scales: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    row_tiles: tuple[int, ...] = ROW_TILES,
) -> torch.Tensor:
    """x·Wᵀ + b: x [rows, num_in] and weight [num_out, num_in] of one type → [rows, num_out].

    x_scales [rows] and w_scales [num_out] are float32, for 8-bit types, e4m3 from sm_89 on;
    bias [num_out] is of any floating type. out_dtype is x's unless given; 8-bit types need one.
    row_tiles are those that `prove_row_tiles` found. Raises ValueError for what does not fit.
    """
    _check(x, weight, bias, x_scales, w_scales)
    out_dtype = out_dtype or x.dtype
    if not out_dtype.is_floating_point or out_dtype.itemsize == 1:
        raise ValueError(f"products of {x.dtype} need an out_dtype, and not {out_dtype}")
    out = torch.empty(x.shape[0], weight.shape[0], dtype=out_dtype, device=x.device)
    if x.shape[0]:
        plan = matrix_plan(weight.shape[0], weight.shape[1], weight.dtype)
        tile = tile_launch(x.shape[0], row_tiles)
        _launch(x, weight, bias, x_scales, w_scales, out, plan, tile)
    return out


def w8a16(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    row_tiles: tuple[int, ...] = ROW_TILES,
) -> torch.Tensor:
    """x·W'ᵀ + b with W' the e4m3 codes [num_out, num_in] times scales [num_out, groups], float32.

    The bits of `gemm` over W' written out in x's type, of 16 bits or 32, on every device. A group
    is all columns of a row, or a multiple of `CODES_GROUP`. The rest is as for `gemm`.
    """
    num_out, num_in = codes.shape
    group = num_in // scales.shape[1]
    if num_in % scales.shape[1] or (group < num_in and group % CODES_GROUP):
        raise ValueError(f"{scales.shape[1]} groups of {num_in} columns have no kernel")
    if scales.shape != (num_out, num_in // group) or not scales.is_contiguous():
        raise ValueError(f"scales have shape {list(scales.shape)}, {num_out} rows are needed")
    if x.ndim != 2 or x.shape[1] != num_in or x.stride(1) != 1 or codes.stride(1) != 1:
        raise ValueError(f"x {list(x.shape)}, strides {x.stride()}, for {num_in} columns")
    _check_vectors(("bias", bias, num_out))
    out = torch.empty(len(x), num_out, dtype=out_dtype or x.dtype, device=x.device)
    if len(x):
        plan, tile = matrix_plan(num_out, num_in, x.dtype), tile_launch(len(x), row_tiles)
        _launch(x, codes.view(torch.uint8), bias, None, scales, out, plan, tile, group)
    return out


def _launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    x_scales: torch.Tensor | None,
    w_scales: torch.Tensor | None,
    out: torch.Tensor,
    plan: MatrixPlan,
    tile: TileLaunch,
    group: int = 0,
) -> None:
    if tile.rows <= SKINNY_ROWS:
        launch_skinny(x, weight, bias, x_scales, w_scales, out, plan, tile, group)
        return
    (num_rows, num_in), num_out = x.shape, weight.shape[0]
    _gemm[(-(-num_rows // tile.rows) * -(-num_out // tile.block_n),)](
        x,
        weight,
        x_scales,
        w_scales,
        bias,
        out,
        num_rows,
        num_out,
        num_in,
        plan.segment,
        x.stride(0),
        weight.stride(0),
        SUM_TYPE=tl.int32 if x.dtype is torch.int8 else tl.float32,
        BLOCK_N=tile.block_n,
        BLOCK_M=tile.rows,
        BLOCK_K=plan.block_k,
        # Sums of int8 are exact: their order is free.
        NUM_SEGMENTS=1 if x.dtype is torch.int8 else plan.num_segments,
        WHOLE=num_in % plan.block_k == 0,
        GROUP=group,
        HARDWARE=has_e4m3(x.device),
        TILE_GROUP=_TILE_GROUP,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )


def _check(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    x_scales: torch.Tensor | None,
    w_scales: torch.Tensor | None,
) -> None:
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1] or x.dtype != weight.dtype:
        raise ValueError(
            f"x {list(x.shape)} of {x.dtype} and a weight {list(weight.shape)} of {weight.dtype}"
        )
    if x.stride(1) != 1 or weight.stride(1) != 1:
        raise ValueError("the columns of x or of the weight are not adjacent")
    rows, num_out = x.shape[0], weight.shape[0]
    _check_vectors(
        ("bias", bias, num_out), ("x_scales", x_scales, rows), ("w_scales", w_scales, num_out)
    )


def _check_vectors(*vectors: tuple[str, torch.Tensor | None, int]) -> None:
    for name, vector, size in vectors:
        if vector is not None and (vector.shape != (size,) or not vector.is_contiguous()):
            raise ValueError(f"{name} has shape {list(vector.shape)}, {size} are needed")


def prove_row_tiles(
    shapes: Iterable[tuple[int, int]], dtype: torch.dtype, device: torch.device
) -> tuple[int, ...]:
    """Those of `ROW_TILES` that give equal rows equal bits, for weights of all shapes [out, in].

    What they are compared with is each row by itself, in the smallest tile. The sums are of terms
    that cancel: what is left is rounding error alone, and nearly every change of order changes it.
    """
    smallest, largest = ROW_TILES[0], ROW_TILES[-1]
    kept: tuple[int, ...] = ROW_TILES
    for num_out, num_in in shapes:
        plan = matrix_plan(num_out, num_in, dtype)
        weight, x = _cancelling(min(num_out, _PROOF_OUTPUTS), num_in, largest + 1, dtype, device)
        expected = torch.cat([_sums(row, weight, plan, smallest) for row in torch.split(x, 1)])
        kept = tuple(
            size
            for size in kept
            if torch.equal(_sums(x, weight, plan, size), expected)
            and torch.equal(_sums(x[1:], weight, plan, size), expected[1:])
        )
    return kept or (smallest,)


def _sums(x: torch.Tensor, weight: torch.Tensor, plan: MatrixPlan, row_tile: int) -> torch.Tensor:
    """Float32 x·Wᵀ in tiles of row_tile rows."""
    out = torch.empty(len(x), len(weight), device=x.device)
    _launch(x, weight, None, None, None, out, plan, tile_launch(len(x), (row_tile,)))
    return out


def _cancelling(
    num_out: int, num_in: int, num_rows: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix [num_out, num_in] and rows whose products are all zero but for rounding."""
    generator = torch.Generator().manual_seed(0)
    half = num_in // 2
    order = torch.randperm(half, generator=generator)
    weight = 8 * torch.randn(num_out, half, generator=generator)
    if dtype is torch.float8_e4m3fn:
        # So few bits have exact sums in float32, unless some terms are far larger than others.
        weight *= 2.0 ** torch.randint(-8, 3, weight.shape, generator=generator)
    rows = 8 * torch.randn(num_rows, half, generator=generator)
    odd = num_in % 2
    weight = torch.cat((weight, -weight[:, order], torch.zeros(num_out, odd)), 1)
    rows = torch.cat((rows, rows[:, order], torch.zeros(num_rows, odd)), 1)
    return weight.to(device, dtype), rows.to(device, dtype)
