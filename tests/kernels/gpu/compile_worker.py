"""The process in which kernels are compiled; see `compile_checks`."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tempfile
from typing import NamedTuple


class Request(NamedTuple):
    """A kernel by its name, since the two processes have two versions of it."""

    module: str
    name: str
    signature: tuple[tuple[str, str], ...]
    constexprs: tuple[tuple[str, object], ...]
    capability: int
    num_warps: int
    num_stages: int


def compile_in_this_process() -> None:
    """Makes kernels be compiled, whatever the environment of the tests says."""
    os.environ.pop("TRITON_INTERPRET", None)


def compile_kernel(request: Request) -> tuple[str, int, int, int, int]:
    """The fields of `compile_checks.Compiled`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(importlib.import_module(request.module), request.name)
    types = dict(request.signature)
    constexprs = dict(request.constexprs)
    signature, attributes = {}, {}
    for place, name in enumerate(kernel.arg_names):
        kind, _, multiple = types.get(name, "constexpr").partition(":")
        signature[name] = kind
        if kind.startswith("*") or multiple:
            attributes[(place,)] = [["tt.divisibility", int(multiple or 16)]]
        if kind == "constexpr" and name not in constexprs:
            raise ValueError(f"argument {name} of {request.name} has neither a type nor a value")
    compiled = triton.compile(
        ASTSource(kernel, signature, constexprs, attributes),
        target=GPUTarget("cuda", request.capability, 32),
        options={"num_warps": request.num_warps, "num_stages": request.num_stages},
    )
    registers, spilled = _resources(compiled.asm["cubin"])
    return (
        compiled.asm["ptx"],
        compiled.metadata.num_warps,
        compiled.metadata.shared,
        registers,
        spilled,
    )


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack of a thread, as the machine code says."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    (found,) = re.findall(r"REG:(\d+) STACK:(\d+)", usage)
    return int(found[0]), int(found[1])
