"""Batches of requests over a paged cache, for the attention tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class PagedBatch:
    """Arguments of paged attention; requests' blocks are scattered over the cache."""

    query: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor

    def arguments(self) -> tuple[torch.Tensor, ...]:
        """The positional arguments, in order."""
        return (
            self.query,
            self.k_cache,
            self.v_cache,
            self.block_tables,
            self.seq_lens,
            self.query_start_loc,
        )

    def rows(self, request: int, first: int, last: int) -> PagedBatch:
        """The batch of only rows [first, last) of one request, as an earlier step had them."""
        start = int(self.query_start_loc[request])
        left_out = int(self.query_start_loc[request + 1]) - start - last
        return replace(
            self,
            query=self.query[start + first : start + last],
            block_tables=self.block_tables[request : request + 1],
            seq_lens=self.seq_lens[request : request + 1] - left_out,
            query_start_loc=torch.tensor([0, last - first], dtype=torch.int32),
        )


def paged_batch(
    lengths: list[tuple[int, int]],
    *,
    num_heads: int = 6,
    num_kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
) -> PagedBatch:
    """Requests of (query_len, seq_len) each. Slots that hold no token hold NaN."""
    generator = torch.Generator().manual_seed(7)
    blocks_of = [-(-seq_len // block_size) for _, seq_len in lengths]
    num_blocks = sum(blocks_of) + 1
    order = torch.randperm(num_blocks, generator=generator).int()
    tables = torch.zeros(len(lengths), max(blocks_of), dtype=torch.int32)
    shape = (num_blocks, num_kv_heads, block_size, head_dim)
    caches = torch.full((2, *shape), torch.nan)
    used = 0
    for request, (_, seq_len) in enumerate(lengths):
        table = order[used : used + blocks_of[request]]
        tables[request, : len(table)] = table
        used += len(table)
        tokens = torch.randn(2, seq_len, num_kv_heads, head_dim, generator=generator)
        positions = torch.arange(seq_len)
        caches[:, table.long()[positions // block_size], :, positions % block_size] = (
            tokens.transpose(0, 1)
        )
    starts = torch.tensor([0, *(query_len for query_len, _ in lengths)]).cumsum(0).int()
    query = torch.randn(int(starts[-1]), num_heads, head_dim, generator=generator)
    caches = caches.to(cache_dtype or dtype)
    return PagedBatch(
        query.to(dtype),
        caches[0],
        caches[1],
        tables,
        torch.tensor([seq_len for _, seq_len in lengths], dtype=torch.int32),
        starts,
    )
