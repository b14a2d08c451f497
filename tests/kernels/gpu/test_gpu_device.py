"""What the use of a GPU lacks is told before anything is loaded, not by its first kernel."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from kernels.gpu.device import why_no_launcher


def test_a_launcher_that_can_be_made_lacks_nothing() -> None:
    assert why_no_launcher(lambda: None) is None


def test_headers_of_python_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})

    reason = why_no_launcher(_compiler_fails)

    assert reason is not None
    assert "Python's headers" in reason
    assert str(tmp_path) in reason


def test_the_command_that_failed_is_told_where_headers_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})

    assert why_no_launcher(_compiler_fails) == "Triton's launcher does not compile: gcc driver.c"


def test_without_a_compiler_triton_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("triton.runtime.build")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    build._find_compiler.cache_clear()

    reason = why_no_launcher(lambda: build._find_compiler("c"))

    assert reason is not None
    assert "Failed to find C compiler" in reason


def _compiler_fails() -> None:
    raise subprocess.CalledProcessError(1, ["gcc", "driver.c"])
