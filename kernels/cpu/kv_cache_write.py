"""One layer's KV cache in the layout of src/attention.h, and writing to it.

A decoder has its own caches and writes to them within its step; these are for the tests.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from kernels.cpu.checks import check_heads, check_indices
from kernels.cpu.library import KV_DTYPES, require

if TYPE_CHECKING:
    import numpy.typing as npt

_BAD_SLOT = 5  # OctavoStatus of src/abi.h
_ALIGNMENT = 64


class KvCacheArgs(ctypes.Structure):
    """OctavoKvCache of src/abi.h."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("dtype", "num_blocks", "num_kv_heads")),
        *((name, ctypes.c_int32) for name in ("block_size", "head_dim")),
    )


class KvCacheWriteArgs(ctypes.Structure):
    """OctavoKvCacheWrite of src/abi.h."""

    _fields_ = (
        ("cache", KvCacheArgs),
        *((name, ctypes.c_void_p) for name in ("key", "value", "slot_mapping")),
        *((name, ctypes.c_int64) for name in ("key_stride", "value_stride")),
        ("num_tokens", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("bad_index", "bad_value")),
    )


class KvCache:
    """Blocks of keys and values; what is in them is what `kv_cache_write` wrote.

    data: uint8 [num_blocks, bytes of a block], zero at first
    """

    def __init__(
        self, num_blocks: int, num_kv_heads: int, block_size: int, head_dim: int, dtype: str
    ) -> None:
        """dtype is a key of `KV_DTYPES`. Raises ValueError for sizes that no layout has."""
        if head_dim % 8 or not 8 <= head_dim <= 256:
            raise ValueError(f"head_dim must be a multiple of 8 up to 256, got {head_dim}")
        if block_size % 16 or block_size == 0:
            raise ValueError(f"block_size must be a multiple of 16, got {block_size}")
        if dtype not in KV_DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(KV_DTYPES)}, got {dtype!r}")
        self.num_blocks = num_blocks
        self.num_kv_heads = num_kv_heads
        self.block_size = block_size
        self.head_dim = head_dim
        self.dtype = dtype
        size = require().handle.octavo_kv_block_bytes
        size.restype = ctypes.c_int64
        block_bytes = size(KV_DTYPES[dtype], num_kv_heads, block_size, head_dim)
        memory = np.zeros(num_blocks * block_bytes + _ALIGNMENT, np.uint8)
        skipped = -memory.ctypes.data % _ALIGNMENT
        self.data = memory[skipped : skipped + num_blocks * block_bytes].reshape(num_blocks, -1)

    def arguments(self) -> KvCacheArgs:
        """What C is told."""
        return KvCacheArgs(
            self.data.ctypes.data,
            KV_DTYPES[self.dtype],
            self.num_blocks,
            self.num_kv_heads,
            self.block_size,
            self.head_dim,
        )


def kv_cache_write(
    key: npt.NDArray[np.float32],
    value: npt.NDArray[np.float32],
    cache: KvCache,
    slot_mapping: npt.NDArray[np.int32],
) -> None:
    """Writes row i of `key` and `value`, rounded to its dtype, into slot `slot_mapping[i]`.

    key, value: [num_tokens, num_kv_heads, head_dim], tokens may lie apart
    slot_mapping: [num_tokens], block number · block_size + place in the block; no slot twice
    Raises ValueError for arrays that do not fit and for a slot outside of the cache, before
    anything is written.
    """
    num_tokens = len(key)
    for name, array in (("key", key), ("value", value)):
        check_heads(name, array, (num_tokens, cache.num_kv_heads, cache.head_dim))
    check_indices("slot_mapping", slot_mapping, (num_tokens,))
    args = KvCacheWriteArgs(
        cache.arguments(),
        key.ctypes.data,
        value.ctypes.data,
        slot_mapping.ctypes.data,
        key.strides[0] // 4,
        value.strides[0] // 4,
        num_tokens,
    )
    if require().handle.octavo_kv_cache_write(ctypes.byref(args)) == _BAD_SLOT:
        raise ValueError(
            f"slot_mapping[{args.bad_index}] is {args.bad_value}, "
            f"the cache has {cache.num_blocks * cache.block_size} slots"
        )
