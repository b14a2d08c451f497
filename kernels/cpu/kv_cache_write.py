"""Stores the keys and values of new tokens in the paged cache, as the reference defines it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from kernels.cpu.checks import check_caches, check_heads, check_indices
from kernels.cpu.library import DTYPES, KvCacheWriteArgs, require

if TYPE_CHECKING:
    import torch

_BAD_SLOT = 5  # OctavoStatus of src/abi.h


def kv_cache_write(
    key: torch.Tensor,
    value: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Writes row i of `key` and `value` into slot `slot_mapping[i]` of the caches, in place.

    key, value: [num_tokens, num_kv_heads, head_dim], tokens may lie apart
    k_cache, v_cache: [num_blocks, num_kv_heads, block_size, head_dim], of the same dtype
    slot_mapping: int32 [num_tokens], block number · block_size + place in the block; no slot twice
    Raises ValueError for tensors that do not fit and for a slot outside of the cache, before
    anything is written; RuntimeError without the library.
    """
    library = require()
    check_caches(k_cache, v_cache)
    num_blocks, num_kv_heads, block_size, head_dim = k_cache.shape
    num_tokens = key.shape[0]
    for name, tensor in (("key", key), ("value", value)):
        check_heads(name, tensor, (num_tokens, num_kv_heads, head_dim))
        if tensor.dtype != k_cache.dtype:
            raise ValueError(f"{name} is {tensor.dtype}, the caches are {k_cache.dtype}")
    check_indices("slot_mapping", slot_mapping, (num_tokens,))
    args = KvCacheWriteArgs(
        key.data_ptr(),
        value.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        slot_mapping.data_ptr(),
        key.stride(0),
        value.stride(0),
        k_cache.stride(0),
        num_tokens,
        num_kv_heads,
        head_dim,
        block_size,
        num_blocks,
        DTYPES[k_cache.dtype],
    )
    if library.handle.octavo_kv_cache_write(ctypes.byref(args)) == _BAD_SLOT:
        raise ValueError(
            f"slot_mapping[{args.bad_index}] is {args.bad_value}, "
            f"the cache has {num_blocks * block_size} slots"
        )
