"""What the processor offers: cores that this process may use, and native 16-bit arithmetic."""

from __future__ import annotations

import math
import os
from pathlib import Path

from engine_svc.cgroups import cgroup_directories, read_number

# Names in /proc/cpuinfo, x86 and Arm.
_NATIVE = {
    "bfloat16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "float16": frozenset({"avx512_fp16", "amx_fp16", "asimdhp"}),
}


def usable_cores(root: Path = Path("/")) -> int:
    """Cores of the process's affinity, or fewer where a cgroup's CPU quota allows less time."""
    cores = len(os.sched_getaffinity(0))
    for version, directory in cgroup_directories("cpu", root):
        quota = _quota_v2(directory) if version == 2 else _quota_v1(directory)
        if quota is not None:
            cores = min(cores, max(1, math.ceil(quota)))
    return cores


def _quota_v2(directory: Path) -> float | None:
    try:
        quota, period = (directory / "cpu.max").read_text().split()
    except OSError:
        return None
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(directory: Path) -> float | None:
    quota = read_number(directory / "cpu.cfs_quota_us")
    period = read_number(directory / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def computes_natively(dtype: str, root: Path = Path("/")) -> bool:
    """Whether the processor has instructions for matrix products of a 16-bit type."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        name, _, flags = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return not _NATIVE[dtype].isdisjoint(flags.split())
    return False


def choose_dtype(
    asked: str, stored: str, *, has_kernels: bool, root: Path = Path("/")
) -> tuple[str, str | None]:
    """The type to compute in, and a notice where it is not what the weights are stored in.

    `asked` is "auto" or a type; `stored` is the checkpoint's type, or what its quantised weights
    decode to. `has_kernels`: the C++ back end can run the model, in bfloat16 on any processor.
    """
    if asked != "auto":
        return asked, None
    if has_kernels and stored == "bfloat16":
        return "bfloat16", None
    if has_kernels and stored == "float16":
        notice = "computing in bfloat16, which keeps 3 bits of mantissa less than stored float16; "
        return "bfloat16", notice + "--dtype float16 computes in torch, several times slower"
    if stored in _NATIVE and not computes_natively(stored, root):
        return "float32", f"this processor has no native {stored}: computing in float32"
    return stored, None
