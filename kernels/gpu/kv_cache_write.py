"""Stores the keys and values of new tokens in the paged cache."""

from __future__ import annotations

import torch

from kernels.gpu.e4m3 import encode_e4m3
from kernels.gpu.triton_types import kernel, next_power_of_2, tl


@kernel()
def stored(x: tl.tensor, scale: tl.tensor, FP8: tl.constexpr, DTYPE: tl.constexpr) -> tl.tensor:
    """What the cache holds for float32 values x: DTYPE, or e4m3 bytes of x / scale."""
    if FP8:
        return encode_e4m3(x / scale)
    return x.to(DTYPE)


@kernel()
def _write(
    key_ptr: tl.tensor,  # [num_tokens, num_kv_heads, head_dim]
    value_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,  # [num_blocks, num_kv_heads, block_size, head_dim]
    v_cache_ptr: tl.tensor,
    slot_mapping_ptr: tl.tensor,  # [num_tokens]
    k_scale_ptr: tl.tensor,  # [num_kv_heads], None unless FP8
    v_scale_ptr: tl.tensor,
    key_stride: tl.tensor,  # elements from token to token
    value_stride: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr,  # powers of 2 that cover the two above
    DIMS: tl.constexpr,
    FP8: tl.constexpr,
) -> None:
    """One program a token."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping_ptr + token).to(tl.int64)
    if slot < 0:
        return
    head = tl.arange(0, HEADS)[:, None]
    dim = tl.arange(0, DIMS)[None, :]
    inside = (head < NUM_KV_HEADS) & (dim < HEAD_DIM)
    row = head * HEAD_DIM + dim
    key = tl.load(key_ptr + token * key_stride + row, inside, other=0.0).to(tl.float32)
    value = tl.load(value_ptr + token * value_stride + row, inside, other=0.0).to(tl.float32)
    k_scale = 1.0
    v_scale = 1.0
    if FP8:
        k_scale = tl.load(k_scale_ptr + head, head < NUM_KV_HEADS, other=1.0)
        v_scale = tl.load(v_scale_ptr + head, head < NUM_KV_HEADS, other=1.0)
    block = slot // BLOCK_SIZE * NUM_KV_HEADS + head
    place = (block * BLOCK_SIZE + slot % BLOCK_SIZE) * HEAD_DIM + dim
    kind = k_cache_ptr.dtype.element_ty
    tl.store(k_cache_ptr + place, stored(key, k_scale, FP8, kind), inside)
    tl.store(v_cache_ptr + place, stored(value, v_scale, FP8, kind), inside)


def kv_cache_write(
    key: torch.Tensor,
    value: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Writes row i of `key` and `value` into slot `slot_mapping[i]` of the caches, in place.

    Arguments are those of `kernels.reference.kv_cache_write`, and further:
    key, value: tokens may lie apart, a token's heads must not
    k_cache, v_cache: contiguous, of the keys' dtype or float8_e4m3fn
    slot_mapping: a row at -1 is not written
    k_scale, v_scale: float32 [num_kv_heads], for float8 caches: value = element · its head's scale
    """
    num_tokens, num_kv_heads, head_dim = key.shape
    k_bytes, v_bytes = cache_bytes(k_cache), cache_bytes(v_cache)
    _write[(num_tokens,)](
        key,
        value,
        k_bytes,
        v_bytes,
        slot_mapping,
        k_scale,
        v_scale,
        key.stride(0),
        value.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=k_cache.shape[2],
        HEADS=next_power_of_2(num_kv_heads),
        DIMS=next_power_of_2(head_dim),
        FP8=is_fp8(k_cache),
    )


def is_fp8(cache: torch.Tensor) -> bool:
    """Whether a cache holds e4m3 bytes. Raises ValueError for another 8-bit type."""
    if cache.dtype == torch.float8_e4m3fn:
        return True
    if cache.dtype.itemsize == 1:
        raise ValueError(f"a KV cache of 8 bits must be float8_e4m3fn, got {cache.dtype}")
    return False


def cache_bytes(cache: torch.Tensor) -> torch.Tensor:
    """A cache as kernels take it: e4m3 as uint8, which every architecture can load."""
    return cache.view(torch.uint8) if is_fp8(cache) else cache
