"""Attention of new tokens over the keys and values that the paged cache holds.

What makes a row's bits independent of its company is that every matrix product here has one shape,
and a row one place in it, whatever the batch: query rows are taken in tiles of TILE absolute
positions and keys in splits of SPLIT absolute positions, padded with zeros where there are none.

    keys       |----- split 0 -----|----- split 1 -----|-- 2
    queries                              |tile|tile|tile|ti      a chunk of prefill
"""

from __future__ import annotations

import torch

TILE = 8  # query positions per product
SPLIT = 128  # key positions per product


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
) -> torch.Tensor:
    """softmax(cap(scale · q·kᵀ) + mask) · v for each query row, accumulated in float32.

    query: [num_tokens, num_heads, head_dim]; request r owns rows [query_start_loc[r],
        query_start_loc[r + 1]), and its row i stands at position p = seq_lens[r] - query_len + i
    k_cache, v_cache: [num_blocks, num_kv_heads, block_size, head_dim]; query head h reads key-value
        head h // (num_heads // num_kv_heads)
    block_tables: int32 [num_requests, max_blocks]; seq_lens: int32 [num_requests];
    query_start_loc: int32 [num_requests + 1]
    window: a row sees positions (p - window, p], or [0, p] if None
    softcap: c in cap(s) = c · tanh(s / c), or no cap if None
    Returns [num_tokens, num_heads, head_dim] in the query's dtype.
    """
    out = torch.empty_like(query)
    starts = query_start_loc.tolist()
    for request, seq_len in enumerate(seq_lens.tolist()):
        row, end = starts[request], starts[request + 1]
        while row < end:
            position = seq_len - (end - row)
            rows = min(TILE - position % TILE, end - row)
            first_key = 0 if window is None else max(0, position - window + 1)
            keys, values = (
                _gather(cache, block_tables[request], first_key, position + rows)
                for cache in (k_cache, v_cache)
            )
            out[row : row + rows] = _attend(
                query[row : row + rows],
                keys,
                values,
                position=position,
                first_key=first_key,
                scale=scale,
                window=window,
                softcap=softcap,
            )
            row += rows
    return out


def _gather(cache: torch.Tensor, block_table: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Positions [start, stop) as float32 [num_splits, num_kv_heads, SPLIT, head_dim]."""
    num_kv_heads, block_size, head_dim = cache.shape[1:]
    base = start // SPLIT * SPLIT
    num_splits = -(-(stop - base) // SPLIT)
    positions = torch.arange(start, stop)
    blocks = block_table.long()[positions // block_size]
    padded = torch.zeros(num_splits * SPLIT, num_kv_heads, head_dim)
    padded[start - base : stop - base] = cache[blocks, :, positions % block_size].float()
    return padded.view(num_splits, SPLIT, num_kv_heads, head_dim).transpose(1, 2)


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    position: int,
    first_key: int,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> torch.Tensor:
    """Rows [rows, num_heads, head_dim] of one tile, the first at `position`, over gathered keys."""
    rows, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    place = position % TILE
    tile = torch.zeros(TILE, num_heads, head_dim)
    tile[place : place + rows] = query.float()
    # [num_kv_heads, TILE · group, head_dim]: the query heads of one key-value head side by side
    grouped = tile.view(TILE, num_kv_heads, -1, head_dim).transpose(0, 1).flatten(1, 2).contiguous()
    group = num_heads // num_kv_heads
    row_positions = (position - place + torch.arange(TILE)).repeat_interleave(group)[:, None]

    largest = torch.full((num_kv_heads, TILE * group, 1), -torch.inf)
    total = torch.zeros_like(largest)
    summed = torch.zeros_like(grouped)
    for split in range(keys.shape[0]):
        scores = torch.bmm(grouped, keys[split].contiguous().transpose(1, 2)) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        key_positions = (first_key // SPLIT + split) * SPLIT + torch.arange(SPLIT)
        seen = key_positions <= row_positions
        if window is not None:
            seen &= key_positions > row_positions - window
        scores = scores.masked_fill(~seen, -torch.inf)
        # A row that sees nothing yet keeps -inf as its largest score, and exp(-inf - 0) = 0.
        new_largest = torch.maximum(largest, scores.amax(-1, keepdim=True))
        shift = new_largest.masked_fill(new_largest == -torch.inf, 0.0)
        weights = torch.exp(scores - shift)
        kept = torch.exp(largest - shift)
        total = total * kept + weights.sum(-1, keepdim=True)
        summed = summed * kept + torch.bmm(weights, values[split].contiguous())
        largest = new_largest
    result = (summed / total).view(num_kv_heads, TILE, group, head_dim).transpose(0, 1)
    return result.flatten(1, 2)[place : place + rows].to(query.dtype)
