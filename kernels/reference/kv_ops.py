"""Which form of the operations on the paged cache runs: C++ where it can, torch otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import kernels.cpu.kv_cache_write
import kernels.cpu.paged_attention
import kernels.reference.kv_cache_write
import kernels.reference.paged_attention
from kernels.cpu.library import DTYPES, Library

if TYPE_CHECKING:
    import torch

    from kernels.spec import DecoderSpec


class PagedAttention(Protocol):
    """As `kernels.reference.paged_attention.paged_attention`."""

    def __call__(
        self,
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
    ) -> torch.Tensor: ...


class KVCacheWrite(Protocol):
    """As `kernels.reference.kv_cache_write.kv_cache_write`."""

    def __call__(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class KVOps:
    """The two operations in one form."""

    paged_attention: PagedAttention
    kv_cache_write: KVCacheWrite
    gathers: bool  # whether attention copies a request's whole KV to work on it


TORCH = KVOps(
    kernels.reference.paged_attention.paged_attention,
    kernels.reference.kv_cache_write.kv_cache_write,
    gathers=True,
)
NATIVE = KVOps(
    kernels.cpu.paged_attention.paged_attention,
    kernels.cpu.kv_cache_write.kv_cache_write,
    gathers=False,
)


def choose_kv_ops(
    library: Library | None, spec: DecoderSpec, dtype: torch.dtype, block_size: int
) -> KVOps:
    """The C++ form if there is a library and it takes these sizes and this type."""
    takes = (
        dtype in DTYPES and spec.head_dim % 8 == 0 and spec.head_dim <= 256 and block_size % 16 == 0
    )
    return NATIVE if library is not None and takes else TORCH
