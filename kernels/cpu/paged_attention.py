"""Attention over the paged cache, read in place, as the reference defines it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from kernels.cpu.checks import check_caches, check_heads, check_indices
from kernels.cpu.library import DTYPES, ISAS, PagedAttentionArgs, require

if TYPE_CHECKING:
    from collections.abc import Callable

_MESSAGES: dict[int, Callable[[PagedAttentionArgs], str]] = {  # OctavoStatus of src/abi.h
    1: lambda args: f"isa {ISAS[args.bad_value]!r} is not available in this build on this CPU",
    2: lambda args: (
        f"query_start_loc[{args.bad_index + 1}] is {args.bad_value}: not an end of request "
        f"{args.bad_index} within {args.num_tokens} query rows"
    ),
    3: lambda args: (
        f"seq_lens[{args.bad_index}] is {args.bad_value}: less than the request's query rows, or "
        f"more than the {args.max_blocks * args.block_size} tokens of its block table"
    ),
    4: lambda args: (
        f"block_tables[{args.bad_index}] names block {args.bad_value}, "
        f"the cache has {args.num_blocks}"
    ),
}
_OUT_OF_MEMORY = 6


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
    out: torch.Tensor | None = None,
    num_threads: int | None = None,
    isa: str | None = None,
) -> torch.Tensor:
    """softmax(cap(scale · q·kᵀ) + mask) · v for each query row, accumulated in float32.

    Arguments are those of `kernels.reference.paged_attention`. Query and caches are float32 or
    bfloat16 each; head_dim is a multiple of 8 up to 256, block_size of 16. Tokens of `query` and
    `out`, and blocks of the caches, may lie apart. Rows that belong to no request are not written.
    out: where to write, or a new tensor is made; of the query's shape and dtype
    num_threads: torch's number by default; the result does not depend on it
    isa: one of `library.load().isas`, the best by default
    Raises ValueError for tensors that do not fit, RuntimeError without the library.
    """
    library = require()
    check_caches(k_cache, v_cache)
    num_blocks, num_kv_heads, block_size, head_dim = k_cache.shape
    if query.ndim != 3:
        raise ValueError(
            f"query must be [num_tokens, num_heads, head_dim], got {list(query.shape)}"
        )
    num_tokens, num_heads, _ = query.shape
    num_requests, max_blocks = block_tables.shape
    check_heads("query", query, (num_tokens, num_heads, head_dim))
    if out is None:
        out = torch.empty(query.shape, dtype=query.dtype)
    else:
        check_heads("out", out, (num_tokens, num_heads, head_dim))
        if out.dtype != query.dtype:
            raise ValueError(f"out is {out.dtype}, query is {query.dtype}")
    check_indices("block_tables", block_tables, (num_requests, max_blocks))
    check_indices("seq_lens", seq_lens, (num_requests,))
    check_indices("query_start_loc", query_start_loc, (num_requests + 1,))
    if num_heads == 0 or num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads cannot share {num_kv_heads} key-value heads")
    if head_dim % 8 or not 8 <= head_dim <= 256:
        raise ValueError(f"head_dim must be a multiple of 8 up to 256, got {head_dim}")
    if block_size % 16 or block_size == 0:
        raise ValueError(f"block_size must be a multiple of 16, got {block_size}")
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap must be above 0, got {softcap}")
    if isa is not None and isa not in ISAS:
        raise ValueError(f"isa must be one of {', '.join(ISAS)}, got {isa!r}")
    if num_threads is None:
        num_threads = torch.get_num_threads()
    elif num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, got {num_threads}")
    args = PagedAttentionArgs(
        query.data_ptr(),
        out.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        block_tables.data_ptr(),
        seq_lens.data_ptr(),
        query_start_loc.data_ptr(),
        query.stride(0),
        out.stride(0),
        k_cache.stride(0),
        num_tokens,
        num_requests,
        num_heads,
        num_kv_heads,
        head_dim,
        block_size,
        num_blocks,
        max_blocks,
        DTYPES[query.dtype],
        DTYPES[k_cache.dtype],
        window or 0,
        num_threads,
        ISAS.index(isa or library.isa),
        scale,
        softcap or 0.0,
    )
    status = library.handle.octavo_paged_attention(ctypes.byref(args))
    if status == _OUT_OF_MEMORY:
        raise MemoryError("paged attention found no memory for its scores")
    if status:
        raise ValueError(_MESSAGES[status](args))
    return out
