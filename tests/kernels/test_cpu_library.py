"""Finding, loading and refusing the shared library of the CPU kernels."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernels.cpu import library


def test_the_library_is_built_and_says_what_it_runs_on() -> None:
    loaded = library.require()

    assert loaded.isas[0] == "portable"
    assert loaded.isa == loaded.isas[-1]
    assert library.unavailable_reason() is None


def test_a_file_that_is_no_library_is_a_reason_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / library.FILE_NAME
    path.write_text("not a shared object")

    reason = library.open_library(path)

    assert isinstance(reason, str)
    assert str(path) in reason


@pytest.mark.skipif(shutil.which("cc") is None, reason="compiles a stand-in library")
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("int octavo_abi_version(void) { return 99; }", "has interface 99 and this code needs"),
        ("int something_else(void) { return 1; }", "does not load"),
    ],
)
def test_a_stale_build_is_refused(tmp_path: Path, source: str, expected: str) -> None:
    path = tmp_path / library.FILE_NAME
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)

    reason = library.open_library(path)

    assert isinstance(reason, str)
    assert expected in reason
