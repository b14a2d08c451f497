"""Makes this process interpret Triton kernels, which has to be said before any is decorated."""

from __future__ import annotations

import importlib.util
import os
import sys

HAS_TRITON = importlib.util.find_spec("triton") is not None


def interpret_kernels() -> None:
    """Has kernels that this process decorates from now on interpreted, where there is Triton.

    The environment is left as it was: tests of this process start servers. Raises RuntimeError if
    Triton was imported as a compiler before.
    """
    if not HAS_TRITON:
        return
    if "triton" in sys.modules:
        from triton import knobs

        if not knobs.runtime.interpret:
            raise RuntimeError("triton was imported before it was told to interpret kernels")
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
