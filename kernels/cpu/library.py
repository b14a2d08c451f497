"""Finds and loads liboctavo_cpu.so.

It is looked for in two places: in `build/` of a source checkout, where an editable install and
`cmake -S . -B build && cmake --build build` put it alike, and in this package, where a wheel has
it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
from dataclasses import dataclass
from pathlib import Path

FILE_NAME = "liboctavo_cpu.so"
ABI_VERSION = 4  # OCTAVO_ABI_VERSION in src/abi.h
ISAS = ("portable", "avx2", "avx512", "avx512bf16")  # OctavoIsa, slowest first
KV_DTYPES = {"bfloat16": 1, "int8": 2}  # OctavoDtype, of the KV cache


@dataclass(frozen=True)
class Library:
    """The loaded library."""

    path: Path
    handle: ctypes.CDLL
    isas: tuple[str, ...]  # that this build and this CPU have, slowest first

    @property
    def isa(self) -> str:
        """The instruction set that kernels use unless told otherwise."""
        return self.isas[-1]


def load() -> Library | None:
    """The library, loaded once per process, or None; `unavailable_reason` then says why."""
    found = _load()
    return found if isinstance(found, Library) else None


def available() -> bool:
    """Whether the kernels of this package can be called."""
    return load() is not None


def unavailable_reason() -> str | None:
    """Why `load` gives None, as one line for people, or None if it gives a library."""
    found = _load()
    return found if isinstance(found, str) else None


def require() -> Library:
    """The library. Raises RuntimeError with the reason where there is none."""
    found = _load()
    if isinstance(found, str):
        raise RuntimeError(f"the CPU kernels are not available: {found}")
    return found


def candidates() -> tuple[Path, ...]:
    """Where the library may lie, in the order of the search."""
    checkout = Path(__file__).parents[2] / "build" / FILE_NAME
    installed = importlib.resources.files("kernels.cpu").joinpath(FILE_NAME)
    return checkout, Path(str(installed))


@functools.cache
def _load() -> Library | str:
    path = next((path for path in candidates() if path.is_file()), None)
    if path is None:
        return f"{FILE_NAME} was not built (reinstall with a C++ compiler present)"
    return open_library(path)


def open_library(path: Path) -> Library | str:
    """The library in a file, or the reason why it cannot be used."""
    try:
        handle = ctypes.CDLL(str(path))
        version = handle.octavo_abi_version()
    except (OSError, AttributeError) as error:
        return f"{path} does not load: {error}"
    if version != ABI_VERSION:
        return f"{path} has interface {version} and this code needs {ABI_VERSION}; build it again"
    isas = tuple(isa for i, isa in enumerate(ISAS) if handle.octavo_isa_supported(i))
    return Library(path, handle, isas)
