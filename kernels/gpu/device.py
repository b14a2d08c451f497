"""The current GPU: whether it can be used, and what of its memory is free."""

from __future__ import annotations

import functools
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


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
    return why_no_launcher()


def _make_launcher() -> None:
    from triton.runtime import driver  # a build of torch without CUDA has no Triton

    driver.active.get_current_target()


def why_no_launcher(make: Callable[[], object] = _make_launcher) -> str | None:
    """What Triton lacks to launch kernels, or None.

    Its launcher is C with Python's headers, compiled on the machine where nothing of it is in
    Triton's cache: a compiler that is missing, or headers, would show in the first launch only.
    """
    try:
        make()
    except subprocess.CalledProcessError as error:
        headers = Path(sysconfig.get_paths()["include"])
        if not (headers / "Python.h").is_file():
            return f"Triton needs Python's headers, and {headers} has none (python3-dev on Debian)"
        return f"Triton's launcher does not compile: {' '.join(map(str, error.cmd))}"
    except (RuntimeError, AssertionError, ImportError, OSError) as error:
        why, _, _ = str(error).partition("\n")
        return f"Triton cannot launch kernels: {why}"
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
