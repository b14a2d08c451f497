"""Joining the splits of `paged_attention`: how two are joined, and a kernel that joins a row's.

A split is the largest score of some keys (in units of log 2), the total of exp2(score - largest)
and the values summed up with those weights.
"""

from __future__ import annotations

from kernels.gpu.triton_types import constexpr, kernel, tl

INFINITY = constexpr(float("inf"))


@kernel()
def finite_or_zero(x: tl.tensor) -> tl.tensor:
    """A largest score as what is taken from scores: exp2(-inf - 0) = 0 for rows that saw none."""
    return tl.where(x == -INFINITY, 0.0, x)


@kernel()
def fold(
    largest: tl.tensor,
    total: tl.tensor,
    summed: tl.tensor,
    new_largest: tl.tensor,
    new_total: tl.tensor,
    new_summed: tl.tensor,
) -> tl.tensor:
    """Joins a split to those before it; [rows], [rows], [rows, head_dim], twice.

    Written in fma, so that a compiler has no choice and two kernels that fold have the same bits.
    """
    joined = tl.maximum(largest, new_largest)
    shift = finite_or_zero(joined)
    kept = tl.exp2(largest - shift)
    added = tl.exp2(new_largest - shift)
    total = tl.fma(total, kept, new_total * added)
    by_row, new_by_row = kept[:, None], added[:, None]
    summed = tl.fma(summed, tl.broadcast_to(by_row, summed.shape), new_summed * new_by_row)
    return joined, total, summed


@kernel(batch_dependent=("split_rows",))
def fold_partials(
    out_ptr: tl.tensor,  # [num_tokens, num_heads, head_dim]
    seq_lens_ptr: tl.tensor,  # [num_requests]
    query_start_loc_ptr: tl.tensor,  # [num_requests + 1]
    v_scale_ptr: tl.tensor,  # [num_kv_heads], None unless FP8
    largest_ptr: tl.tensor,  # [partial rows, num_heads, max_splits]
    total_ptr: tl.tensor,
    summed_ptr: tl.tensor,  # [partial rows, num_heads, max_splits, head_dim]
    out_stride: tl.tensor,
    max_splits: tl.tensor,
    split_rows: tl.tensor,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    WINDOW: tl.constexpr,
    FP8: tl.constexpr,
    SPLIT: tl.constexpr,
    UNROLLED: tl.constexpr,  # splits fetched at a time
) -> None:
    """Program (i, h): query head h of partial row i."""
    partial_row = tl.program_id(0)
    head = tl.program_id(1)
    request = partial_row // split_rows
    start = tl.load(query_start_loc_ptr + request)
    query_len = tl.load(query_start_loc_ptr + request + 1) - start
    place = partial_row % split_rows
    if (place >= query_len) | (query_len > split_rows):
        return
    position = tl.load(seq_lens_ptr + request) - query_len + place
    first_split = 0
    if WINDOW:
        first_split = tl.maximum(position - WINDOW + 1, 0) // SPLIT
    dim = tl.arange(0, DIMS)
    in_head = dim < HEAD_DIM
    largest = tl.full([1], -INFINITY, tl.float32)
    total = tl.zeros([1], tl.float32)
    summed = tl.zeros([1, DIMS], tl.float32)
    partials = (partial_row * tl.num_programs(1) + head).to(tl.int64) * max_splits
    for split in tl.range(first_split, position // SPLIT + 1, loop_unroll_factor=UNROLLED):
        partial = partials + split + tl.arange(0, 1)
        sums = summed_ptr + (partial * HEAD_DIM)[:, None] + dim[None, :]
        largest, total, summed = fold(
            largest,
            total,
            summed,
            tl.load(largest_ptr + partial),
            tl.load(total_ptr + partial),
            tl.load(sums, in_head[None, :], other=0.0),
        )
    value_scale = 1.0
    if FP8:
        value_scale = tl.load(v_scale_ptr + head // GROUP)
    result = summed / total[:, None] * value_scale
    row = (start + place).to(tl.int64)
    places = row * out_stride + head * HEAD_DIM + dim[None, :]
    tl.store(out_ptr + places, result.to(out_ptr.dtype.element_ty), in_head[None, :])
