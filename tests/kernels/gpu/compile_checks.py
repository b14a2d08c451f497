"""Kernels compiled ahead of time, for GPUs that need not be there.

    compiled = compile_for(
        activation._gated,
        {"gate_ptr": "*bf16", "row_stride": "i32:16", "num_rows": "i32"},
        {"BLOCK": 1024},
        SM90,
        num_warps=4,
    )
    assert_fits(compiled, SM90)

One worker process serves all tests of a process: here kernels are interpreted, there compiled.
"""

from __future__ import annotations

import functools
import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import compile_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernels.gpu.triton_types import Kernel

P = ParamSpec("P")
T = TypeVar("T")
_WARP = 32
_REGISTERS_OF_A_MULTIPROCESSOR = 65_536


@dataclass(frozen=True)
class Target:
    """An architecture. Limits are CUDA's, for one block of threads (CUDA C++ guide, table 30)."""

    capability: int
    max_shared_bytes: int
    tensor_core_instruction: str  # what tiles of 64 rows and more are multiplied with


SM80 = Target(80, 163 * 1024, "mma.sync")
SM90 = Target(90, 227 * 1024, "wgmma.mma_async")
SM100 = Target(100, 227 * 1024, "tcgen05.mma")
TARGETS = (SM80, SM90, SM100)


@dataclass(frozen=True)
class Compiled:
    """What became of a kernel. Registers and spilled bytes are a thread's."""

    ptx: str
    num_warps: int
    shared_bytes: int
    registers: int
    spilled_bytes: int

    @property
    def tensor_core_instructions(self) -> set[str]:
        """Kinds of matrix instruction that it has, such as "mma.sync"."""
        return set(re.findall(r"\b(mma\.sync|wgmma\.mma_async|tcgen05\.mma)\b", self.ptx))


def compile_for(
    kernel: Kernel,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    target: Target,
    *,
    num_warps: int = 4,
    num_stages: int = 2,
) -> Compiled:
    """Machine code of a kernel for a target.

    signature: the type of each argument that is no constexpr: "*bf16", "i32", "fp32"; "i32:16" is
        a multiple of 16. Pointers are aligned to 16 bytes. None needs "constexpr" and a value None.
    Raises what Triton's compiler raises.
    """
    function = kernel.fn
    request = compile_worker.Request(
        function.__module__,
        function.__qualname__,
        tuple(signature.items()),
        tuple(constexprs.items()),
        target.capability,
        num_warps,
        num_stages,
    )
    return Compiled(*in_worker(compile_worker.compile_kernel, request))


def in_worker(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function returns in the process where kernels are compiled."""
    return _worker().submit(function, *args, **kwargs).result()


def assert_fits(compiled: Compiled, target: Target) -> None:
    """That the target can hold the kernel, and nothing of it is spilled to memory."""
    assert compiled.shared_bytes <= target.max_shared_bytes
    assert compiled.spilled_bytes == 0
    threads = compiled.num_warps * _WARP
    assert compiled.registers * threads <= _REGISTERS_OF_A_MULTIPROCESSOR


@functools.cache
def _worker() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=compile_worker.compile_in_this_process,
    )
