"""Other holders of a GPU's memory, as a program in nvidia-smi's place tells of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine_svc.gpu_tenants import Tenant, gpu_tenants

MIB = 1 << 20


@pytest.fixture
def driver(tmp_path: Path):
    def write(*lines: str) -> str:
        program = tmp_path / "nvidia-smi"
        program.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n", encoding="utf-8")
        program.chmod(0o755)
        return str(program)

    return write


def test_other_processes_are_named_the_largest_first(driver) -> None:
    program = driver(
        'echo "17, /usr/bin/a, b, 100"',
        f'echo "{os.getpid()}, python, 900"',
        'echo "23, python3, 2048"',
        'echo "29, Xorg, [N/A]"',
    )

    assert gpu_tenants("GPU-1", program) == (
        Tenant(23, "python3", 2048 * MIB),
        Tenant(17, "/usr/bin/a, b", 100 * MIB),
    )


def test_the_driver_is_asked_about_the_one_gpu(driver, tmp_path) -> None:
    program = driver(f'echo "$@" > {tmp_path}/asked')

    gpu_tenants("GPU-77", program)

    assert "--id=GPU-77" in (tmp_path / "asked").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("line", ["exit 9", 'echo "No devices were found"', "echo"])
def test_a_driver_with_nothing_to_tell_names_nobody(driver, line) -> None:
    assert gpu_tenants("GPU-1", driver(line)) == ()


def test_without_the_driver_s_program_nobody_is_named(tmp_path) -> None:
    assert gpu_tenants("GPU-1", str(tmp_path / "missing")) == ()
