"""Kernel modules where Triton is not installed: they import, and a launch says what is missing."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
sys.modules["triton"] = None  # makes its import fail as if it were not there
import torch
from kernels.gpu.kv_cache_write import kv_cache_write
key, caches = torch.zeros(1, 1, 64), torch.zeros(2, 1, 1, 16, 64)
kv_cache_write(key, key, *caches, torch.zeros(1, dtype=torch.int32))
"""


def test_a_launch_names_triton() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)

    last_line = ended.stderr.strip().splitlines()[-1]
    assert last_line == "RuntimeError: _write needs triton, which is not installed"
