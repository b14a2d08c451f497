"""Checks of tensor arguments before their addresses are handed to C."""

from __future__ import annotations

import torch

from kernels.cpu.library import DTYPES


def check_caches(k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
    """Raises ValueError unless both are [num_blocks, num_kv_heads, block_size, head_dim] alike.

    Blocks must be contiguous; they may lie apart, as in a slice of a pool of several layers.
    """
    if k_cache.ndim != 4 or k_cache.shape != v_cache.shape:
        raise ValueError(
            "k_cache and v_cache must both be [num_blocks, num_kv_heads, block_size, head_dim], "
            f"got {list(k_cache.shape)} and {list(v_cache.shape)}"
        )
    if k_cache.dtype not in DTYPES or k_cache.dtype != v_cache.dtype:
        raise ValueError(
            f"k_cache and v_cache must both be float32 or bfloat16, "
            f"got {k_cache.dtype} and {v_cache.dtype}"
        )
    block_size, head_dim = k_cache.shape[2:]
    strides = (block_size * head_dim, head_dim, 1)
    if k_cache.stride() != v_cache.stride() or k_cache.stride()[1:] != strides:
        raise ValueError("the blocks of k_cache and v_cache must be contiguous and spaced alike")
    if k_cache.device.type != "cpu" or v_cache.device.type != "cpu":
        raise ValueError(
            f"k_cache is on {k_cache.device}, v_cache on {v_cache.device}, not the CPU"
        )


def check_heads(name: str, tensor: torch.Tensor, shape: tuple[int, int, int]) -> None:
    """Raises ValueError unless a tensor [num_tokens, heads, head_dim] has contiguous tokens.

    Tokens may lie apart, as in a slice of a fused projection.
    """
    if tensor.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(tensor.shape)}")
    if tensor.dtype not in DTYPES:
        raise ValueError(f"{name} must be float32 or bfloat16, got {tensor.dtype}")
    if tensor.stride()[1:] != (shape[2], 1):
        raise ValueError(f"each token of {name} must be contiguous, got strides {tensor.stride()}")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name} must be on the CPU, got {tensor.device}")


def check_indices(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless a tensor is contiguous int32 of this shape."""
    if tensor.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(tensor.shape)}")
    if tensor.dtype != torch.int32 or not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous int32, got {tensor.dtype}")
    if tensor.device.type != "cpu":
        raise ValueError(f"{name} must be on the CPU, got {tensor.device}")
