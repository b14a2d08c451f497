"""The process that has the device and runs checks on it."""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from tests.gpu_check.outcome import Check, Findings, NoDeviceError, Outcome, Section, Skip, Status

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_OURS = ("kernels", "engine_svc", "router_svc", "octavo", "tests")
_LINE = 240  # letters of a line of an error
_ROOT = Path(__file__).resolve().parents[2]


def work(
    pipe: Connection, interpret: bool, sections: tuple[Section, ...], model: Path | None
) -> None:
    """Describes the device and lists checks; then runs those asked for until the pipe closes.

    Leads a group of processes, so that a server that a check started can be ended with it.
    """
    os.setpgid(0, 0)
    try:
        from tests.gpu_check.catalogue import checks_of
        from tests.gpu_check.device import find_device

        device = find_device(interpret=interpret)
    except NoDeviceError as error:
        pipe.send(str(error))
        return
    except ModuleNotFoundError as error:
        pipe.send(f"{error.name} is not installed")
        return
    checks = [check for check in checks_of(device, model) if check.section in sections]
    pipe.send((device.description, [(check.section, check.name) for check in checks]))
    answer_checks(pipe, checks, device.is_usable)


def answer_checks(pipe: Connection, checks: list[Check], is_usable) -> None:
    """Runs the checks that are asked for by number, and says whether more can be asked."""
    while True:
        try:
            check = checks[pipe.recv()]
        except EOFError:
            return
        outcome = run_check(check)
        pipe.send((outcome, is_usable()))


def run_check(check: Check) -> Outcome:
    """What comes of a check."""
    start = time.perf_counter()
    status, findings = Status.OK, Findings()
    try:
        findings = check.run()
    except Skip as reason:
        status, findings = Status.SKIPPED, Findings(str(reason))
    except ModuleNotFoundError as error:
        # Without one of our own modules something is wrong; without another, something is absent.
        ours = (error.name or "").partition(".")[0] in _OURS
        status = Status.FAILED if ours else Status.SKIPPED
        findings = Findings(f"{error.name} is not installed")
    except AssertionError as error:
        status, findings = Status.FAILED, Findings(str(error) or "an assertion")
    except Exception as error:  # noqa: BLE001 (whatever breaks one check, the rest must run)
        status, findings = Status.FAILED, Findings(_told(error))
    return Outcome(check.section, check.name, status, findings, time.perf_counter() - start)


def _told(error: Exception) -> str:
    """An error in a line, its first and its last, with the innermost place that is ours.

    Triton's compiler, and the log of a server that ended, say what was wrong at their end.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if _ROOT in Path(frame.filename).parents]
    place = f" ({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""
    text = str(error).strip().splitlines()
    told = " … ".join(line.strip()[:_LINE] for line in (*text[:1], *text[1:][-1:]))
    return f"{type(error).__name__}: {told}{place}"
