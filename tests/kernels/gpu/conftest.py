"""Two ways to test a GPU kernel without a GPU, which need two kinds of process.

Interpreted, in the process of the tests: numpy computes what a kernel would, over CPU tensors, in
float32 and float16. Never in bfloat16: the interpreter's bfloat16 arithmetic is silently wrong.
Kernels must be decorated for it, so Triton is told before anything imports it (tests/conftest.py).

Compiled, in a worker process (`compile_checks`): machine code for each architecture, looked at but
not run. That is where bfloat16 is checked.
"""

from __future__ import annotations

import os

import pytest

from tests.support.triton_interpreter import HAS_TRITON


@pytest.fixture(autouse=True)
def _needs_triton() -> None:
    if not HAS_TRITON:
        if os.environ.get("CI") == "true":
            pytest.fail("triton is not installed")
        pytest.skip("triton is not installed")
