"""Attention of new tokens over the keys and values that the paged cache holds.

    tile      `rows` of (position, query head of one key-value head), positions side by side; tiles
              begin at absolute positions, so that a row has one place in them however it is cut
    split     `split` absolute positions of keys, taken in tiles of `keys`, summed up by themselves

    keys       |----- split 0 -----|----- split 1 -----|-- 2         fold in order: ((0 + 1) + 2)
    queries                              |tile|tile|tile|ti      a chunk of prefill
                                                              |  a row of decoding

A program has a tile of one key-value head, of prefill and decoding alike in one launch; it goes
through all splits and folds as it goes. Few rows of decoding do not fill a device: then the
programs of a tile share its splits and leave partial sums, which a second kernel folds. Both ways
have the same products of the same tiles, and fold in the same order, in fma, where a compiler has
no choice. So a row's bits depend on its own request only: neither on its batch, nor on how its
prompt was cut, nor on which of the two ways it went.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kernels.gpu.attention_splits import INFINITY, finite_or_zero, fold, fold_partials
from kernels.gpu.e4m3 import decode_e4m3
from kernels.gpu.kv_cache_write import cache_bytes, is_fp8
from kernels.gpu.launch_table import FOLDED_AT_A_TIME, SHARED_PROGRAMS, attention_launch
from kernels.gpu.triton_types import constexpr, kernel, next_power_of_2, tl

if TYPE_CHECKING:
    from kernels.gpu.launch_table import AttentionLaunch

_LOG2_E = constexpr(1.4426950408889634)


@kernel()
def _first_tile(
    query_start_loc_ptr: tl.tensor, request: tl.tensor, POSITIONS: tl.constexpr
) -> tl.tensor:
    """The program with a request's first tile: L rows touch L // POSITIONS + 2 tiles at most."""
    return tl.load(query_start_loc_ptr + request) // POSITIONS + 2 * request


@kernel()
def _request_of(
    query_start_loc_ptr: tl.tensor,
    program: tl.tensor,
    num_requests: tl.tensor,
    POSITIONS: tl.constexpr,
) -> tl.tensor:
    """The last request whose first tile is not after this program, by bisection."""
    low = program * 0
    high = num_requests - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _first_tile(query_start_loc_ptr, middle, POSITIONS) <= program:
            low = middle
        else:
            high = middle - 1
    return low


@kernel(batch_dependent=("num_requests", "tiles_per_request", "split_rows"))
def _attend(
    query_ptr: tl.tensor,  # [num_tokens, num_heads, head_dim]
    out_ptr: tl.tensor,  # [num_tokens, num_heads, head_dim]
    k_cache_ptr: tl.tensor,  # [num_blocks, num_kv_heads, block_size, head_dim]
    v_cache_ptr: tl.tensor,
    block_tables_ptr: tl.tensor,  # [num_requests, max_blocks]
    seq_lens_ptr: tl.tensor,  # [num_requests]
    query_start_loc_ptr: tl.tensor,  # [num_requests + 1]
    k_scale_ptr: tl.tensor,  # [num_kv_heads], None unless FP8
    v_scale_ptr: tl.tensor,
    largest_ptr: tl.tensor,  # [partial rows, num_heads, max_splits], None without partial sums
    total_ptr: tl.tensor,
    summed_ptr: tl.tensor,  # [partial rows, num_heads, max_splits, head_dim]
    query_stride: tl.tensor,  # elements from token to token
    out_stride: tl.tensor,
    table_stride: tl.tensor,
    max_splits: tl.tensor,
    scale: tl.tensor,
    softcap: tl.tensor,
    num_requests: tl.tensor,
    tiles_per_request: tl.tensor,  # 0 if they differ by far: then tiles are found by bisection
    split_rows: tl.tensor,  # requests of at most as many rows are SHARED, others are not
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads of a key-value head
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,  # a power of 2 that covers it
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,  # 0 for none
    SOFTCAP: tl.constexpr,
    FP8: tl.constexpr,
    FP8_HARDWARE: tl.constexpr,
    SHARED: tl.constexpr,  # whether programs share rows and leave partial sums
    WIDE: tl.constexpr,  # whether the cache has too many elements to be counted in 32 bits
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """Program (i, h, z): tile i of key-value head h; all of its splits, or if SHARED those of z."""
    POSITIONS: tl.constexpr = ROWS // GROUP
    TILES: tl.constexpr = SPLIT // KEYS
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    program = tl.num_programs(0) - 1 - tl.program_id(0)  # the ends of prompts, most work, first
    kv_head = tl.program_id(1)
    z = tl.program_id(2)

    if tiles_per_request > 0:
        request = program // tiles_per_request
        tile = program % tiles_per_request
    else:
        request = _request_of(query_start_loc_ptr, program, num_requests, POSITIONS)
        tile = program - _first_tile(query_start_loc_ptr, request, POSITIONS)
    start = tl.load(query_start_loc_ptr + request)
    query_len = tl.load(query_start_loc_ptr + request + 1) - start
    seq_len = tl.load(seq_lens_ptr + request)
    first_position = seq_len - query_len
    tile_start = (first_position // POSITIONS + tile) * POSITIONS
    is_shared = query_len <= split_rows
    if (query_len <= 0) | (tile_start >= seq_len) | (is_shared != SHARED):
        return

    # Which splits are this program's, and how many tiles of keys they have.
    last_position = tl.minimum(tile_start + POSITIONS, seq_len) - 1
    first_key = 0
    if WINDOW:
        first_key = tl.maximum(tl.maximum(tile_start, first_position) - WINDOW + 1, 0)
    first_split = first_key // SPLIT
    num_splits = last_position // SPLIT + 1 - first_split
    stride = tl.num_programs(2)
    mine = (num_splits - z + stride - 1) // stride
    if mine <= 0:
        return
    last_split = first_split + z + (mine - 1) * stride
    end_of_last = tl.minimum(last_position + 1, (last_split + 1) * SPLIT) - last_split * SPLIT
    num_tiles = (mine - 1) * TILES + (end_of_last + KEYS - 1) // KEYS
    first_tile = tl.where(z == 0, first_key % SPLIT // KEYS, 0)

    lane = tl.arange(0, ROWS)
    dim = tl.arange(0, DIMS)
    in_head = dim < HEAD_DIM
    position = tile_start + lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    valid = (position >= first_position) & (position <= last_position) & (lane < POSITIONS * GROUP)
    row = start + position - first_position
    inside = valid[:, None] & in_head[None, :]
    query = tl.load(
        query_ptr + (row * query_stride + head * HEAD_DIM)[:, None] + dim[None, :],
        inside,
        other=0.0,
    )
    model_type = query.dtype
    score_scale = scale
    value_scale = 1.0
    if FP8:
        score_scale = scale * tl.load(k_scale_ptr + kv_head)
        value_scale = tl.load(v_scale_ptr + kv_head)
    if not SOFTCAP:
        score_scale = score_scale * _LOG2_E

    largest = tl.full([ROWS], -INFINITY, tl.float32)  # of all splits so far
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, DIMS], tl.float32)
    split_largest = tl.full([ROWS], -INFINITY, tl.float32)  # of the split at hand
    split_total = tl.zeros([ROWS], tl.float32)
    split_summed = tl.zeros([ROWS, DIMS], tl.float32)
    # One loop over the tiles of all splits, which the compiler can fetch ahead throughout.
    for t in range(first_tile, num_tiles):
        split = first_split + z + t // TILES * stride
        key = split * SPLIT + t % TILES * KEYS + tl.arange(0, KEYS)
        written = key <= last_position
        table = block_tables_ptr + request.to(tl.int64) * table_stride
        block = tl.load(table + key // BLOCK_SIZE, written, other=0)
        if WIDE:
            block = block.to(tl.int64)
        place = ((block * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + key % BLOCK_SIZE) * HEAD_DIM
        elements = place[:, None] + dim[None, :]
        fetched = written[:, None] & in_head[None, :] if DIMS != HEAD_DIM else written[:, None]
        keys = tl.load(k_cache_ptr + elements, fetched, other=0)
        if FP8:
            keys = decode_e4m3(keys, model_type, FP8_HARDWARE)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * score_scale
        if SOFTCAP:
            # tanh(x) = 1 - 2 / (exp(2x) + 1), which no x makes NaN
            exponential = tl.exp2(scores / softcap * (2 * _LOG2_E))
            scores = (1.0 - 2.0 / (exponential + 1.0)) * (softcap * _LOG2_E)
        seen = key[None, :] <= position[:, None]
        if WINDOW:
            seen = seen & (key[None, :] > position[:, None] - WINDOW)
        scores = tl.where(seen, scores, -INFINITY)
        new_largest = tl.maximum(split_largest, tl.max(scores, 1))
        shift = finite_or_zero(new_largest)
        weights = tl.exp2(scores - shift[:, None])
        kept = tl.exp2(split_largest - shift)
        split_total = tl.fma(split_total, kept, tl.sum(weights, 1))
        values = tl.load(v_cache_ptr + elements, fetched, other=0)
        if FP8:
            values = decode_e4m3(values, model_type, FP8_HARDWARE)
        split_summed = tl.dot(
            weights.to(model_type), values, split_summed * kept[:, None], input_precision="ieee"
        )
        split_largest = new_largest
        if (t % TILES == TILES - 1) | (t == num_tiles - 1):
            if SHARED:
                partial_row = request * split_rows + position - first_position
                partial = (partial_row * NUM_HEADS + head) * max_splits + split
                tl.store(largest_ptr + partial, split_largest, valid)
                tl.store(total_ptr + partial, split_total, valid)
                sums = summed_ptr + (partial * HEAD_DIM)[:, None] + dim[None, :]
                tl.store(sums, split_summed, inside)
            else:
                largest, total, summed = fold(
                    largest, total, summed, split_largest, split_total, split_summed
                )
            split_largest = tl.full([ROWS], -INFINITY, tl.float32)
            split_total = tl.zeros([ROWS], tl.float32)
            split_summed = tl.zeros([ROWS, DIMS], tl.float32)
    if not SHARED:
        total = tl.where(valid, total, 1.0)
        result = summed / total[:, None] * value_scale
        places = (row * out_stride + head * HEAD_DIM)[:, None] + dim[None, :]
        tl.store(out_ptr + places, result.to(out_ptr.dtype.element_ty), inside)


@dataclass(frozen=True, slots=True)
class PartialSums:
    """Where programs that share a row leave their sums; one serves all layers, one after another.

    Rows are [request · rows_per_request + row of the request]. All are float32.
    """

    rows_per_request: int  # requests with more rows in a step share none
    largest: torch.Tensor  # [rows, num_heads, max_splits], in units of log 2
    total: torch.Tensor  # [rows, num_heads, max_splits]
    summed: torch.Tensor  # [rows, num_heads, max_splits, head_dim]

    def holds(self, num_requests: int, num_splits: int) -> bool:
        """Whether so many requests fit. Raises ValueError for more splits than were planned for."""
        rows, _, max_splits = self.largest.shape
        if num_splits > max_splits:
            raise ValueError(f"partial sums of {max_splits} splits cannot hold {num_splits}")
        return num_requests * self.rows_per_request <= rows


def partial_sums(
    num_requests: int,
    rows_per_request: int,
    num_heads: int,
    head_dim: int,
    max_seq_len: int,
    *,
    launch: AttentionLaunch,
    device: torch.device,
) -> PartialSums:
    """Room for so many requests of at most `max_seq_len` tokens; batches of more go without.

    Raises ValueError for more than the kernels count in 32 bits.
    """
    shape = (num_requests * rows_per_request, num_heads, -(-max_seq_len // launch.split))
    if math.prod(shape) * head_dim >= 2**31:
        raise ValueError(f"partial sums of {list(shape)} heads are too many")
    return PartialSums(
        rows_per_request,
        torch.empty(shape, device=device),
        torch.empty(shape, device=device),
        torch.empty(*shape, head_dim, device=device),
    )


def paged_attention(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    query_start_loc: torch.Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    max_query_len: int,
    max_seq_len: int,
    partials: PartialSums | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    launch: AttentionLaunch | None = None,
) -> torch.Tensor:
    """softmax(cap(scale · q·kᵀ) + mask) · v for each query row, accumulated in float32.

    Arguments are those of `kernels.reference.paged_attention`, on one device, and further:
    query: tokens may lie apart, a token's heads must not
    k_cache, v_cache: contiguous, of the query's dtype or float8_e4m3fn
    query_start_loc: rows beyond its last entry, and requests without rows, are left out
    max_query_len, max_seq_len: bounds of the batch, for the number of programs only: a captured
        graph takes its largest
    partials: lets programs share long rows; bits are the same without
    k_scale, v_scale: float32 [num_kv_heads], for float8 caches: value = element · its head's scale
    out: where to write, or a new tensor is made; of the query's shape
    launch: another than the table's, for tests
    Raises ValueError for heads that cannot be shared, and for partial sums that are too short.
    """
    num_tokens, num_heads, head_dim = query.shape
    _, num_kv_heads, block_size, _ = k_cache.shape
    num_requests = len(seq_lens)
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads cannot share {num_kv_heads} key-value heads")
    if launch is None:
        launch = attention_launch(query.device, head_dim)
    if out is None:
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    group = num_heads // num_kv_heads
    positions = launch.rows // group  # of a tile
    num_splits = -(-max_seq_len // launch.split)
    shares, tiles, sharers = None, 0, 1
    if partials is not None:
        tiles = (partials.rows_per_request + positions - 2) // positions + 1
        sharers = min(num_splits, SHARED_PROGRAMS // (num_requests * tiles * num_kv_heads))
        if sharers > 1 and partials.holds(num_requests, num_splits):
            shares = partials
    split_rows = 0 if shares is None else shares.rows_per_request
    sizes = {
        "GROUP": group,
        "HEAD_DIM": head_dim,
        "DIMS": next_power_of_2(head_dim),
        "WINDOW": window or 0,
        "FP8": is_fp8(k_cache),
        "SPLIT": launch.split,
    }

    def attend(programs: tuple[int, int, int], tiles_per_request: int, *, shared: bool) -> None:
        _attend[programs](
            query,
            out,
            cache_bytes(k_cache),
            cache_bytes(v_cache),
            block_tables,
            seq_lens,
            query_start_loc,
            k_scale,
            v_scale,
            shares.largest if shares and shared else None,
            shares.total if shares and shared else None,
            shares.summed if shares and shared else None,
            query.stride(0),
            out.stride(0),
            block_tables.stride(0),
            shares.largest.shape[2] if shares and shared else 0,
            scale,
            softcap or 0.0,
            num_requests,
            tiles_per_request,
            split_rows,
            NUM_KV_HEADS=num_kv_heads,
            BLOCK_SIZE=block_size,
            SOFTCAP=softcap is not None,
            FP8_HARDWARE=launch.fp8_hardware,
            SHARED=shared,
            WIDE=k_cache.numel() >= 2**31,
            ROWS=launch.rows,
            KEYS=launch.keys,
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
            **sizes,
        )

    if shares is not None:
        attend((num_requests * tiles, num_kv_heads, sharers), tiles, shared=True)
        fold_partials[(num_requests * split_rows, num_heads)](
            out,
            seq_lens,
            query_start_loc,
            v_scale,
            shares.largest,
            shares.total,
            shares.summed,
            out.stride(0),
            shares.largest.shape[2],
            split_rows,
            UNROLLED=FOLDED_AT_A_TIME,
            num_warps=1,
            **sizes,
        )
    if max_query_len == 1 and shares is None:
        attend((num_requests, num_kv_heads, 1), 1, shared=False)
    elif max_query_len > split_rows:
        attend((num_tokens // positions + 2 * num_requests, num_kv_heads, 1), 0, shared=False)
    return out
