"""The script of `make gpu-check` itself, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def gpu_check(*args: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), str(ROOT / "protos"), os.environ.get("PYTHONPATH", "")]
    hidden = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "tests.gpu_check", *args]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | hidden, capture_output=True, text=True, check=False
    )


def test_interpreted_every_check_is_well(tmp_path: Path) -> None:
    report = tmp_path / "report.md"

    done = gpu_check("--interpret", "--output", str(report))

    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 FAILED, " in done.stdout
    for heading in ("Each kernel against", "Whole decoder steps", "Equal bits"):
        assert f"== {heading}" in done.stdout
        assert f"## {heading}" in report.read_text()


def test_interpreted_every_figure_can_be_taken(tmp_path: Path) -> None:
    report = tmp_path / "report.md"

    done = gpu_check("--interpret", "--sections", "benchmarks", "serving", "--output", str(report))

    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("| gemm, bf16 |", "| fp8, rounded rows |", "| rms_norm |", " decode at "):
        assert row in report.read_text()


def test_without_a_gpu_it_says_so() -> None:
    done = gpu_check()

    assert done.returncode == 2
    assert "no GPU to check: " in done.stdout
    assert "docs/gpu.md" in done.stdout
