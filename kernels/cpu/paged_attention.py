"""Attention over the paged cache alone, as the reference defines it.

A decoder calls it from within its step; this is for the tests.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from kernels.cpu.checks import check_heads, check_indices
from kernels.cpu.kv_cache_write import KvCache, KvCacheArgs
from kernels.cpu.library import ISAS, require

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


class PagedAttentionArgs(ctypes.Structure):
    """OctavoPagedAttention of src/abi.h."""

    _fields_ = (
        ("cache", KvCacheArgs),
        *((name, ctypes.c_void_p) for name in ("query", "out", "block_tables", "seq_lens")),
        ("query_start_loc", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("query_stride", "out_stride")),
        *((name, ctypes.c_int32) for name in ("num_tokens", "num_requests", "max_blocks")),
        *((name, ctypes.c_int32) for name in ("num_heads", "window", "num_threads", "isa")),
        *((name, ctypes.c_float) for name in ("scale", "softcap")),
        *((name, ctypes.c_int64) for name in ("bad_index", "bad_value")),
    )


_MESSAGES: dict[int, Callable[[PagedAttentionArgs], str]] = {  # OctavoStatus of src/abi.h
    1: lambda args: f"isa {ISAS[args.bad_value]!r} is not available in this build on this CPU",
    2: lambda args: (
        f"query_start_loc[{args.bad_index + 1}] is {args.bad_value}: not an end of request "
        f"{args.bad_index} within {args.num_tokens} query rows"
    ),
    3: lambda args: (
        f"seq_lens[{args.bad_index}] is {args.bad_value}: less than the request's query rows, or "
        f"more than the {args.max_blocks * args.cache.block_size} tokens of its block table"
    ),
    4: lambda args: (
        f"block_tables[{args.bad_index}] names block {args.bad_value}, "
        f"the cache has {args.cache.num_blocks}"
    ),
}
_OUT_OF_MEMORY = 6


def paged_attention(
    query: npt.NDArray[np.float32],
    cache: KvCache,
    block_tables: npt.NDArray[np.int32],
    seq_lens: npt.NDArray[np.int32],
    query_start_loc: npt.NDArray[np.int32],
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    out: npt.NDArray[np.float32] | None = None,
    num_threads: int = 1,
    isa: str | None = None,
) -> npt.NDArray[np.float32]:
    """softmax(cap(scale · q·kᵀ) + mask) · v for each query row, accumulated in float32.

    Arguments are those of `kernels.reference.paged_attention`. Tokens of `query` and `out` may lie
    apart. Rows that belong to no request are not written.
    out: where to write, or a new array is made; of the query's shape
    num_threads: the result does not depend on it
    isa: one of `library.load().isas`, the best by default
    Raises ValueError for arrays that do not fit, RuntimeError without the library.
    """
    library = require()
    if query.ndim != 3:
        raise ValueError(
            f"query must be [num_tokens, num_heads, head_dim], got {list(query.shape)}"
        )
    num_tokens, num_heads, _ = query.shape
    num_requests, max_blocks = block_tables.shape
    check_heads("query", query, (num_tokens, num_heads, cache.head_dim))
    if out is None:
        out = np.empty(query.shape, np.float32)
    else:
        check_heads("out", out, (num_tokens, num_heads, cache.head_dim))
    check_indices("block_tables", block_tables, (num_requests, max_blocks))
    check_indices("seq_lens", seq_lens, (num_requests,))
    check_indices("query_start_loc", query_start_loc, (num_requests + 1,))
    if num_heads == 0 or num_heads % cache.num_kv_heads:
        raise ValueError(
            f"{num_heads} query heads cannot share {cache.num_kv_heads} key-value heads"
        )
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap must be above 0, got {softcap}")
    if isa is not None and isa not in ISAS:
        raise ValueError(f"isa must be one of {', '.join(ISAS)}, got {isa!r}")
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, got {num_threads}")
    args = PagedAttentionArgs(
        cache.arguments(),
        query.ctypes.data,
        out.ctypes.data,
        block_tables.ctypes.data,
        seq_lens.ctypes.data,
        query_start_loc.ctypes.data,
        query.strides[0] // 4,
        out.strides[0] // 4,
        num_tokens,
        num_requests,
        max_blocks,
        num_heads,
        window or 0,
        num_threads,
        ISAS.index(isa or library.isa),
        scale,
        softcap or 0.0,
    )
    status = library.handle.octavo_paged_attention(ctypes.byref(args))
    if status == _OUT_OF_MEMORY:
        raise MemoryError("paged attention found no memory for its states")
    if status:
        raise ValueError(_MESSAGES[status](args))
    return out
