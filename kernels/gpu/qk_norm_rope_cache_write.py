"""What stands between the product that makes q, k and v and attention, in one pass over its result.

    qkv row    [ q heads          | k heads   | v heads   ]
                 norm, rope         norm, rope
                 └ in place         └ k_cache   └ v_cache

Defined as the composition of `kernels.reference`: `rms_norm` of the q and k heads (if the model has
it), `rope` of both, then `kv_cache_write`, each rounding to the model's type where they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.gpu.kv_cache_write import cache_bytes, is_fp8, stored
from kernels.gpu.launch_table import HEADS_PER_PROGRAM
from kernels.gpu.rope import rotated_half
from kernels.gpu.triton_types import kernel, next_power_of_2, tl

if TYPE_CHECKING:
    import torch


@kernel()
def _norm_rope_write(
    qkv_ptr: tl.tensor,  # [num_tokens, num_heads + 2 · num_kv_heads, head_dim]
    positions_ptr: tl.tensor,  # [num_tokens]
    cos_ptr: tl.tensor,  # [num_positions, head_dim / 2]
    sin_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,  # [num_blocks, num_kv_heads, block_size, head_dim]
    v_cache_ptr: tl.tensor,
    slot_mapping_ptr: tl.tensor,  # [num_tokens]
    norm_ptr: tl.tensor,  # [num_heads + num_kv_heads, head_dim], None without norm
    k_scale_ptr: tl.tensor,  # [num_kv_heads], None unless FP8
    v_scale_ptr: tl.tensor,
    qkv_stride: tl.tensor,  # elements from token to token
    eps: tl.tensor,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr,  # heads of a program
    HALF: tl.constexpr,  # a power of 2 that covers half a head
    NORM: tl.constexpr,
    FP8: tl.constexpr,
) -> None:
    """HEADS heads of one token, of any kind, as tiles of their first and second halves."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    dim = tl.arange(0, HALF)[None, :]
    half = HEAD_DIM // 2
    in_half = dim < half
    inside = (head < NUM_HEADS + 2 * NUM_KV_HEADS) & in_half
    is_value = head >= NUM_HEADS + NUM_KV_HEADS
    model_type = qkv_ptr.dtype.element_ty

    place = qkv_ptr + token * qkv_stride + head * HEAD_DIM + dim
    first = tl.load(place, inside, other=0.0).to(tl.float32)
    second = tl.load(place + half, inside, other=0.0).to(tl.float32)
    turned_first, turned_second = first, second
    if NORM:
        mean = tl.sum(first * first + second * second, 1)[:, None] / HEAD_DIM
        root = tl.sqrt(mean + eps)
        normed = inside & (head < NUM_HEADS + NUM_KV_HEADS)
        scales = norm_ptr + head * HEAD_DIM + dim
        scale_first = tl.load(scales, normed, other=0.0)
        scale_second = tl.load(scales + half, normed, other=0.0)
        scale_type = scale_first.dtype
        turned_first = (first / root).to(scale_type).to(tl.float32) * scale_first.to(tl.float32)
        turned_second = (second / root).to(scale_type).to(tl.float32) * scale_second.to(tl.float32)
        turned_first = turned_first.to(scale_type).to(model_type).to(tl.float32)
        turned_second = turned_second.to(scale_type).to(model_type).to(tl.float32)

    position = tl.load(positions_ptr + token).to(tl.int64)
    angle = position * half + dim
    cos = tl.load(cos_ptr + angle, in_half, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + angle, in_half, other=0.0).to(tl.float32)
    rotated_first = rotated_half(turned_first, turned_second, cos, -sin, model_type)
    rotated_second = rotated_half(turned_second, turned_first, cos, sin, model_type)

    is_query = inside & (head < NUM_HEADS)
    tl.store(place, rotated_first.to(model_type), is_query)
    tl.store(place + half, rotated_second.to(model_type), is_query)

    slot = tl.load(slot_mapping_ptr + token).to(tl.int64)
    if slot < 0:
        return
    is_key = inside & (head >= NUM_HEADS) & (head < NUM_HEADS + NUM_KV_HEADS)
    is_value = inside & (head >= NUM_HEADS + NUM_KV_HEADS)
    kv_head = (head - NUM_HEADS) % NUM_KV_HEADS
    k_scale = 1.0
    v_scale = 1.0
    if FP8:
        k_scale = tl.load(k_scale_ptr + kv_head, head >= NUM_HEADS, other=1.0)
        v_scale = tl.load(v_scale_ptr + kv_head, head >= NUM_HEADS, other=1.0)
    block = slot // BLOCK_SIZE * NUM_KV_HEADS + kv_head
    stored_at = (block * BLOCK_SIZE + slot % BLOCK_SIZE) * HEAD_DIM + dim
    kind = k_cache_ptr.dtype.element_ty
    tl.store(k_cache_ptr + stored_at, stored(rotated_first, k_scale, FP8, kind), is_key)
    tl.store(k_cache_ptr + stored_at + half, stored(rotated_second, k_scale, FP8, kind), is_key)
    tl.store(v_cache_ptr + stored_at, stored(first, v_scale, FP8, kind), is_value)
    tl.store(v_cache_ptr + stored_at + half, stored(second, v_scale, FP8, kind), is_value)


def qk_norm_rope_cache_write(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    num_heads: int,
    qk_norm: torch.Tensor | None,
    eps: float,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Norms and turns the query heads of `qkv` in place, and writes keys and values to the cache.

    The key and value heads of `qkv` are left as they were.

    qkv: [num_tokens, num_heads + 2 · num_kv_heads, head_dim], tokens may lie apart, a token's heads
        must not; `paged_attention` takes qkv[:, :num_heads]
    positions: int32 [num_tokens], rows of the table
    cos, sin: [num_positions, head_dim / 2], as `kernels.reference.rope.RopeTable` has them
    k_cache, v_cache: [num_blocks, num_kv_heads, block_size, head_dim], contiguous, of the type of
        `qkv` or float8_e4m3fn
    slot_mapping: int32 [num_tokens]; keys and values of a row at -1 are written nowhere
    qk_norm: [num_heads + num_kv_heads, head_dim] in the form of `norm_scale`, None without norm
    k_scale, v_scale: float32 [num_kv_heads], for float8 caches: value = element · its head's scale
    """
    num_tokens, all_heads, head_dim = qkv.shape
    num_kv_heads = (all_heads - num_heads) // 2
    programs = (num_tokens, -(-all_heads // HEADS_PER_PROGRAM))
    _norm_rope_write[programs](
        qkv,
        positions,
        cos,
        sin,
        cache_bytes(k_cache),
        cache_bytes(v_cache),
        slot_mapping,
        qk_norm,
        k_scale,
        v_scale,
        qkv.stride(0),
        eps,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=k_cache.shape[2],
        HEADS=HEADS_PER_PROGRAM,
        HALF=next_power_of_2(head_dim // 2),
        NORM=qk_norm is not None,
        FP8=is_fp8(k_cache),
    )
