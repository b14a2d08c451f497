"""The device that is checked, what it lacks, and its limits, measured."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial

import torch

from kernels.gpu.device import why_no_launcher
from tests.gpu_check.outcome import NoDeviceError, Skip
from tests.gpu_check.timing import seconds_of

LEAST_CAPABILITY = (8, 0)  # below it `kernels.gpu.launch_table` has no rows
_E4M3_CAPABILITY = (8, 9)
_MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """What the card itself reaches. Bytes, or operations, per second."""

    bandwidth: float
    flops: float  # of torch.mm in bfloat16
    l2_bytes: int

    def share(self, seconds: float, num_bytes: float, operations: float = 0.0) -> tuple[str, str]:
        """What bounds some work, and how near to that bound it came, as text."""
        by_memory, by_arithmetic = num_bytes / self.bandwidth, operations / self.flops
        bound = "memory" if by_memory >= by_arithmetic else "arithmetic"
        return bound, f"{max(by_memory, by_arithmetic) / seconds:.0%}"


@dataclass(frozen=True)
class Device:
    """A GPU, or the CPU that stands in for one."""

    torch_device: torch.device
    capability: tuple[int, int]
    description: tuple[str, ...]

    @property
    def is_interpreted(self) -> bool:
        """Whether Triton's interpreter computes."""
        return self.torch_device.type == "cpu"

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Types to check in. The interpreter's bfloat16 is wrong, and nothing is learnt of it."""
        if self.is_interpreted:
            return (torch.float32,)
        return (torch.bfloat16, torch.float16, torch.float32)

    @property
    def has_e4m3_products(self) -> bool:
        """Whether matrices of float8 can be multiplied."""
        return not self.is_interpreted and self.capability >= _E4M3_CAPABILITY

    @property
    def free_bytes(self) -> int:
        """Device memory that nobody uses now."""
        if self.is_interpreted:
            return 4096 * _MIB
        gc.collect()  # decoders and their graphs hold each other
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.torch_device)[0]

    @functools.cached_property
    def limits(self) -> Limits:
        """Measured when first asked for, which takes a second."""
        size = min(2**31, self.free_bytes // 8) if not self.is_interpreted else _MIB
        source = torch.ones(size, dtype=torch.uint8, device=self.torch_device)
        copy = partial(torch.empty_like(source).copy_, source)
        bandwidth = 2 * size / seconds_of([copy], self.torch_device)
        del source, copy
        n = 64 if self.is_interpreted else 8192
        a = torch.randn(n, n, device=self.torch_device, dtype=torch.bfloat16)
        flops = 2 * n**3 / seconds_of([partial(torch.mm, a, a)], self.torch_device)
        l2 = 0
        if not self.is_interpreted:
            l2 = torch.cuda.get_device_properties(self.torch_device).L2_cache_size
        return Limits(bandwidth, flops, l2)

    def need(self, num_bytes: float) -> None:
        """Raises Skip where so much device memory is not free."""
        if num_bytes > (free := self.free_bytes):
            raise Skip(f"needs {num_bytes / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free")

    def is_usable(self) -> bool:
        """Whether the device still works: an illegal access ends it for this process, and a capture
        that failed can leave torch's allocator in the middle of it."""
        if self.is_interpreted:
            return True
        gc.collect()
        try:
            torch.cuda.synchronize(self.torch_device)
            torch.cuda.empty_cache()
            torch.zeros(1, device=self.torch_device)
        except RuntimeError:
            return False
        return bool(
            torch.cuda.current_stream(self.torch_device)
            == torch.cuda.default_stream(self.torch_device)
        )


def find_device(*, interpret: bool) -> Device:
    """The first GPU, or the interpreter. Raises NoDeviceError that says what is missing."""
    if interpret:
        version = _triton_version()
        if version is None:
            raise NoDeviceError("triton is not installed: pip install triton")
        torch.set_num_threads(1)
        lines = (f"Triton {version} interprets kernels on a CPU, torch {torch.__version__}",)
        return Device(torch.device("cpu"), (0, 0), lines)
    if torch.version.cuda is None:
        raise NoDeviceError(f"torch {torch.__version__} is built without CUDA")
    if not torch.cuda.is_available():
        raise NoDeviceError("torch sees no CUDA device: is there a driver? (nvidia-smi)")
    if (version := _triton_version()) is None:
        raise NoDeviceError("triton is not installed: pip install triton")
    if (lacking := why_no_launcher()) is not None:
        raise NoDeviceError(lacking)
    device = torch.device("cuda", 0)
    capability = torch.cuda.get_device_capability(device)
    free, total = torch.cuda.mem_get_info(device)
    lines = [
        f"{torch.cuda.get_device_name(device)}, compute capability {capability[0]}.{capability[1]}",
        f"{total / 2**30:.0f} GiB of memory, {free / 2**30:.0f} GiB free",
        f"driver {_driver_version()}, CUDA {torch.version.cuda}, torch {torch.__version__}, "
        f"triton {version}, {os.cpu_count()} CPU cores",
        *(f"lacks: {what}" for what in _lacking(capability, free, total)),
    ]
    return Device(device, capability, tuple(lines))


def _triton_version() -> str | None:
    try:
        import triton
    except ModuleNotFoundError:
        return None
    return triton.__version__


def _driver_version() -> str:
    if shutil.which("nvidia-smi") is None:
        return "of unknown version"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() or "of unknown version"


def _lacking(capability: tuple[int, int], free: int, total: int) -> list[str]:
    lacking = []
    if capability < LEAST_CAPABILITY:
        lacking.append("compute capability 8.0, which attention and bfloat16 need")
    elif capability < _E4M3_CAPABILITY:
        lacking.append("products of float8 (compute capability 8.9)")
    if free < 0.9 * total:
        lacking.append(f"{(total - free) / 2**30:.0f} GiB of memory, which others use")
    return lacking
