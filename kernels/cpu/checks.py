"""Checks of array arguments before their addresses are handed to C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def check_heads(name: str, array: npt.NDArray[np.float32], shape: tuple[int, int, int]) -> None:
    """Raises ValueError unless a float32 array [num_tokens, heads, head_dim] has contiguous tokens.

    Tokens may lie apart, as in a slice of a fused projection.
    """
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(array.shape)}")
    if array.dtype != np.float32:
        raise ValueError(f"{name} must be float32, got {array.dtype}")
    if array.strides[1:] != (4 * shape[2], 4):
        raise ValueError(f"each token of {name} must be contiguous, got strides {array.strides}")


def check_indices(name: str, array: npt.NDArray[np.int32], shape: tuple[int, ...]) -> None:
    """Raises ValueError unless an array is contiguous int32 of this shape."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}, got {list(array.shape)}")
    if array.dtype != np.int32 or not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous int32, got {array.dtype}")
