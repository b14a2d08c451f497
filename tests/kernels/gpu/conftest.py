"""Two ways to test a GPU kernel without a GPU, which need two kinds of process.

Interpreted, in the process of the tests: numpy computes what a kernel would, over CPU tensors, in
float32 and float16. Never in bfloat16: the interpreter's bfloat16 arithmetic is silently wrong.
Kernels must be decorated for it, so that Triton is told before it is first imported.

Compiled, in a worker process (`compile_checks`): machine code for each architecture, looked at but
not run. That is where bfloat16 is checked.
"""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest


def _interpret_kernels() -> None:
    """Makes kernels that this process decorates from now on interpreted ones.

    The environment is left as it was: other tests of this process start servers.
    """
    if "triton" in sys.modules:
        from triton import knobs

        if not knobs.runtime.interpret:
            raise pytest.UsageError("triton was imported before it was told to interpret kernels")
        return
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"  # its own library is decorated as it is imported
    try:
        from triton import knobs
    finally:
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before
    knobs.propagate_env = False  # or the next line would write to the environment
    knobs.runtime.interpret = True
    knobs.propagate_env = True


HAS_TRITON = importlib.util.find_spec("triton") is not None
if HAS_TRITON:
    _interpret_kernels()


@pytest.fixture(autouse=True)
def _needs_triton() -> None:
    if not HAS_TRITON:
        if os.environ.get("CI") == "true":
            pytest.fail("triton is not installed")
        pytest.skip("triton is not installed")
