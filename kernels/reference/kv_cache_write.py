"""Stores the keys and values of new tokens in the paged cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def kv_cache_write(
    key: torch.Tensor,
    value: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Writes row i of `key` and `value` into slot `slot_mapping[i]` of the caches, in place.

    key, value: [num_tokens, num_kv_heads, head_dim], of the caches' dtype
    k_cache, v_cache: [num_blocks, num_kv_heads, block_size, head_dim]
    slot_mapping: int32 [num_tokens], block number · block_size + place in the block; no slot twice
    """
    block_size = k_cache.shape[2]
    blocks = slot_mapping.long() // block_size
    places = slot_mapping.long() % block_size
    k_cache[blocks, :, places] = key
    v_cache[blocks, :, places] = value
