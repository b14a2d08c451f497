"""The memory that a model is planned for: what is free here, a size, or a GPU's."""

from __future__ import annotations

import re
from dataclasses import dataclass

import psutil

from engine_svc.config import ConfigError
from engine_svc.memory import AvailableMemory, available_memory

_UNITS = {
    "": 1, "b": 1,
    "k": 10**3, "kb": 10**3, "ki": 1 << 10, "kib": 1 << 10,
    "m": 10**6, "mb": 10**6, "mi": 1 << 20, "mib": 1 << 20,
    "g": 10**9, "gb": 10**9, "gi": 1 << 30, "gib": 1 << 30,
    "t": 10**12, "tb": 10**12, "ti": 1 << 40, "tib": 1 << 40,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_MOST_BYTES = 1 << 48

# Memory in GiB, whole ones of what the vendor's driver shows.
_GPUS = {
    "T4": 15, "V100-16GB": 16, "V100-32GB": 32,
    "A10": 22, "L4": 22, "L40S": 44,
    "RTX3090": 23, "RTX4090": 23, "RTX5090": 31, "RTXA6000": 47,
    "A100-40GB": 39, "A100": 79,
    "H100": 79, "H200": 139, "B200": 178, "MI300X": 191,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """What a model, or a rank of it, is planned for."""

    name: str
    available: AvailableMemory
    is_gpu: bool
    utilization: float = 1.0  # the share of a GPU that is counted


def choose_target(
    memory: str | None, gpu: str | None, utilization: float, num_ranks: int = 1
) -> Target:
    """The target that the flags name; `utilization` is the share of a GPU that may be used.

    It is one of `num_ranks` ranks', which share this machine where the flags name nothing else.

    Raises ConfigError.
    """
    if memory is not None and gpu is not None:
        raise ConfigError("--memory and --gpu are two answers to one question; give one of them")
    if gpu is not None:
        return _gpu(_find_gpu(gpu), utilization)
    if memory is not None:
        size = parse_size("--memory", memory)
        return Target("memory as given", AvailableMemory(size, "--memory"), is_gpu=False)
    free = available_memory(psutil.virtual_memory().available)
    return Target("this machine", free.shared_by(num_ranks), is_gpu=False)


def parse_size(flag: str, text: str) -> int:
    """Bytes, from for example "16GiB", "16Gi" (the same), "16GB" or "17179869184".

    Raises ConfigError naming `flag`.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    unit = _UNITS.get(match[2]) if match else None
    size = round(float(match[1]) * unit) if match and unit else 0
    if not 1 <= size <= _MOST_BYTES:
        raise ConfigError(f"{flag} {text!r} is no size such as 16GiB, or none that is served")
    return size


def smallest_gpu(num_bytes: int, target: Target) -> Target | None:
    """The smallest known GPU that has so much in the share that `target` has, if there is one."""
    by_size = sorted(_GPUS, key=lambda name: _GPUS[name])
    found = (_gpu(name, target.utilization) for name in by_size)
    return next((gpu for gpu in found if gpu.available.num_bytes >= num_bytes), None)


def _gpu(name: str, utilization: float) -> Target:
    size = _GPUS[name] << 30
    share = AvailableMemory(int(size * utilization), f"{utilization:.0%} of one {name}")
    return Target(name, share, is_gpu=True, utilization=utilization)


def _find_gpu(asked: str) -> str:
    wanted = _plain(asked)
    for name in _GPUS:
        if _plain(name) == wanted:
            return name
    raise ConfigError(
        f"--gpu {asked}: known are {', '.join(_GPUS)}; for another one, give its memory by --memory"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
