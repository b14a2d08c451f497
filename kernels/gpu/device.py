"""The current GPU: whether it can be used, and what of its memory is free."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import NamedTuple

import torch


class GpuMemory(NamedTuple):
    """Of one GPU, in bytes; others may hold a part of it."""

    name: str
    uuid: str  # "GPU-…", by which the driver knows it
    free: int
    total: int


def why_unusable() -> str | None:
    """What the use of a GPU lacks here, or None."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU, or was built without CUDA"
    if find_spec("triton") is None:
        return "triton is not installed"
    return None


def gpu_memory() -> GpuMemory:
    """Memory of the current GPU."""
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return GpuMemory(properties.name, f"GPU-{properties.uuid}", free, total)


@functools.cache
def has_e4m3(device: torch.device) -> bool:
    """Whether a device converts and multiplies float8 by instructions, as no interpreter does."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def current_device() -> torch.device:
    """The GPU that torch uses unless told otherwise."""
    return torch.device("cuda", torch.cuda.current_device())
