"""Which device computes a model here, and how much of its memory is to be had.

torch is imported only where there is an NVIDIA GPU, or one was asked for.
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from engine_svc.config import ConfigError
from engine_svc.gpu_tenants import gpu_tenants
from engine_svc.memory import AvailableMemory, available_memory, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine_svc.gpu_tenants import Tenant

_MOST_NAMED = 3  # processes
_DRIVER = "dev/nvidiactl"  # made by NVIDIA's driver, in containers that have a GPU, too


def choose_device(
    asked: str,
    *,
    root: Path = Path("/"),
    why_not: Callable[[], str | None] | None = None,
) -> tuple[str, str | None]:
    """What computes, "cpu" or "cuda", and a notice where there is a GPU that cannot.

    `asked` is one of these or "auto"; `why_not` says what a GPU's use lacks here, None for nothing.
    Raises ConfigError where a GPU was asked for and cannot be used.
    """
    if asked == "cpu" or (asked == "auto" and not (root / _DRIVER).exists()):
        return "cpu", None
    reason = (why_not or missing_for_gpu)()
    if reason is None:
        return "cuda", None
    if asked == "cuda":
        raise ConfigError(f"--device cuda: {reason}; --device cpu computes without one")
    return "cpu", f"this machine's GPU is not used: {reason}"


def missing_for_gpu() -> str | None:
    """What the use of a GPU lacks in this environment, or None."""
    if find_spec("torch") is None:
        return "torch is not installed"
    from kernels.gpu.device import why_unusable

    return why_unusable()


def memory_to_take(*, on_gpu: bool, utilization: float) -> AvailableMemory:
    """What this process may take where it computes: on the current GPU, or of the machine."""
    if on_gpu:
        return available_gpu_memory(utilization)
    return available_memory(psutil.virtual_memory().available)


def available_gpu_memory(utilization: float) -> AvailableMemory:
    """The share of what is free on the current GPU, which others may use as well."""
    from kernels.gpu.device import gpu_memory

    name, uuid, free, total = gpu_memory()
    tenants = gpu_tenants(uuid) if is_shared(free, total) else ()
    described = describe_gpu(name, free, total, utilization, tenants)
    return AvailableMemory(int(free * utilization), described)


def is_shared(free: int, total: int) -> bool:
    """Whether others hold more of a GPU's memory than its driver and display do."""
    return total - free > total // 10


def describe_gpu(
    name: str, free: int, total: int, utilization: float, tenants: Sequence[Tenant] = ()
) -> str:
    """What bounds a GPU's memory, for people; names who holds much of it, the largest first."""
    text = f"{utilization:.0%} of the {format_bytes(free)} that are free on {name}"
    if not is_shared(free, total):
        return text
    text += f"; {format_bytes(total - free)} of its {format_bytes(total)} are held by others"
    if not tenants:
        return f"{text} (by whom is not to be seen from here)"
    named = (f"{each.name} ({each.pid}) {format_bytes(each.num_bytes)}" for each in tenants)
    return f"{text}: {', '.join(islice(named, _MOST_NAMED))}"
