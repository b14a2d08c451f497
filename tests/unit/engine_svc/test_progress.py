"""What an engine prints while it starts."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from engine_svc.progress import StartupPrinter


class FullDisk(io.StringIO):
    """Where the log is that can take no more."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, f"No space left on device for {text!r}")


def test_a_log_on_a_full_disk_ends_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FullDisk())
    printer = StartupPrinter()

    with printer.phase("loading weights"):
        pass

    assert [phase.name for phase in printer.phases] == ["loading weights"]
