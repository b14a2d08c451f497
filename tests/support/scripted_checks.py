"""A worker of `tests.gpu_check` without a device, whose checks end in every way a kernel can."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from tests.gpu_check.outcome import Check, Findings, Section, Skip
from tests.gpu_check.worker import answer_checks


def scripted_work(pipe: Connection, *names: str) -> None:
    """Offers the checks of these names; after one called "breaks" the device cannot be used."""
    checks = [Check(Section.KERNELS, name, _SCRIPT[name]) for name in names]
    pipe.send((("a device of paper",), [(check.section, check.name) for check in checks]))
    answer_checks(pipe, checks, is_usable=lambda: not _broken)


def no_device(pipe: Connection) -> None:
    """There is nothing to check."""
    pipe.send("no device of paper")


_broken: list[bool] = []


def _well() -> Findings:
    return Findings(f"by process {os.getpid()}")


def _wrong() -> Findings:
    raise AssertionError("off by one")


def _breaks() -> Findings:
    _broken.append(True)
    raise RuntimeError("an illegal memory access")


def _absent() -> Findings:
    raise Skip("needs more paper")


def _dies() -> Findings:
    os._exit(7)


def _hangs() -> Findings:
    time.sleep(600)
    return Findings()


_SCRIPT: dict[str, Callable[[], Findings]] = {
    "well": _well,
    "wrong": _wrong,
    "breaks": _breaks,
    "absent": _absent,
    "dies": _dies,
    "hangs": _hangs,
}
