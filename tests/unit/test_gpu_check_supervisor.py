"""`make gpu-check` goes on whatever a kernel does to the process that runs it."""

from __future__ import annotations

import pytest

from tests.gpu_check.outcome import NoDeviceError, Outcome, Status
from tests.gpu_check.supervisor import Job, Supervisor
from tests.support.scripted_checks import no_device, scripted_work


def run(*names: str, budget_seconds: float = 600.0, check_seconds: float = 60.0) -> list[Outcome]:
    job = Job(scripted_work, names, check_seconds=check_seconds)
    shown: list[Outcome] = []
    outcomes = Supervisor(job, budget_seconds, shown.append).run()
    assert shown == outcomes
    return outcomes


def test_a_check_says_what_it_found() -> None:
    well, wrong, absent = run("well", "wrong", "absent")

    assert well.status is Status.OK
    assert (wrong.status, wrong.findings.note) == (Status.FAILED, "off by one")
    assert (absent.status, absent.findings.note) == (Status.SKIPPED, "needs more paper")


def test_after_a_check_that_kills_its_process_the_next_one_has_another() -> None:
    before, dies, after = run("well", "dies", "well")

    assert (dies.status, dies.findings.note) == (Status.FAILED, "its process ended with status 7")
    assert before.status is after.status is Status.OK
    assert before.findings != after.findings


def test_a_device_that_broke_is_left_to_the_next_process() -> None:
    before, breaks, after = run("well", "breaks", "well")

    assert breaks.status is Status.FAILED
    assert "RuntimeError: an illegal memory access (scripted_checks.py:" in breaks.findings.note
    assert before.findings != after.findings


def test_a_check_that_does_not_end_is_given_up() -> None:
    hangs, after = run("hangs", "well", check_seconds=1.0)

    assert (hangs.status, hangs.findings.note) == (Status.FAILED, "no answer within 1 s")
    assert after.status is Status.OK


def test_what_there_is_no_time_for_is_named() -> None:
    (late,) = run("well", budget_seconds=0.0)

    assert late.status is Status.SKIPPED
    assert "no time left" in late.findings.note


def test_without_a_device_the_reason_is_told() -> None:
    with pytest.raises(NoDeviceError, match="no device of paper"):
        Supervisor(Job(no_device), 60.0, lambda _outcome: None)
