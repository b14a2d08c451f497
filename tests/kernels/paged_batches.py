"""Batches of requests over a paged cache, for the attention tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.cpu.kv_cache_write import KvCache, kv_cache_write

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class PagedBatch:
    """Arguments of the reference's paged attention; requests' blocks are scattered over the cache.

    All are float32 or int32. Slots that hold no token hold NaN.
    """

    query: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor

    def arguments(self) -> tuple[torch.Tensor, ...]:
        """The reference's positional arguments, in order."""
        return (
            self.query,
            self.k_cache,
            self.v_cache,
            self.block_tables,
            self.seq_lens,
            self.query_start_loc,
        )

    def cpu_arguments(
        self, dtype: str = "bfloat16"
    ) -> tuple[npt.NDArray[np.float32], KvCache, ...]:
        """The same for the C++ kernels, over a cache of this dtype."""
        num_blocks, num_kv_heads, block_size, head_dim = self.k_cache.shape
        cache = KvCache(num_blocks, num_kv_heads, block_size, head_dim, dtype)
        cache.data.fill(0xFF)  # NaN, wherever it is read as a number
        for table, seq_len in zip(self.block_tables.long(), self.seq_lens.tolist(), strict=True):
            positions = torch.arange(seq_len)
            blocks, places = table[positions // block_size], positions % block_size
            key, value = (cache[blocks, :, places] for cache in (self.k_cache, self.v_cache))
            slots = (blocks * block_size + places).int()
            kv_cache_write(key.numpy(), value.numpy(), cache, slots.numpy())
        indices = (self.block_tables, self.seq_lens, self.query_start_loc)
        return (self.query.numpy(), cache, *(tensor.numpy() for tensor in indices))

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
) -> PagedBatch:
    """Requests of (query_len, seq_len) each, of values that bfloat16 has exactly."""
    generator = torch.Generator().manual_seed(7)
    blocks_of = [-(-seq_len // block_size) for _, seq_len in lengths]
    num_blocks = sum(blocks_of) + 1
    order = torch.randperm(num_blocks, generator=generator).int()
    tables = torch.zeros(len(lengths), max(blocks_of), dtype=torch.int32)
    caches = torch.full((2, num_blocks, num_kv_heads, block_size, head_dim), torch.nan)
    used = 0
    for request, (_, seq_len) in enumerate(lengths):
        table = order[used : used + blocks_of[request]]
        tables[request, : len(table)] = table
        used += len(table)
        tokens = torch.randn(2, seq_len, num_kv_heads, head_dim, generator=generator)
        positions = torch.arange(seq_len)
        caches[:, table.long()[positions // block_size], :, positions % block_size] = (
            tokens.bfloat16().float().transpose(0, 1)
        )
    starts = torch.tensor([0, *(query_len for query_len, _ in lengths)]).cumsum(0).int()
    query = torch.randn(int(starts[-1]), num_heads, head_dim, generator=generator)
    return PagedBatch(
        query.bfloat16().float(),
        caches[0],
        caches[1],
        tables,
        torch.tensor([seq_len for _, seq_len in lengths], dtype=torch.int32),
        starts,
    )
