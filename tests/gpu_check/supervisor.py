"""Runs checks in a process of their own, so that none can end the run.

    here                                    worker
    what can you check?         ─────►      finds the device
    a description, titles       ◄─────
    check i                     ─────►      runs it
    what came of it             ◄─────

A kernel that reads where it must not breaks its process's CUDA context for good, and one that does
not end cannot be interrupted. A worker that died, broke or hangs is replaced, and the next check
goes to its successor.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.gpu_check.outcome import ENDS, Findings, NoDeviceError, Outcome, Section, Status

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

_START_SECONDS = 120.0  # to import torch, which a cold disk makes slow
_OVERTIME_SECONDS = 15.0  # that a check may go on beyond its section's end


@dataclass(frozen=True)
class Job:
    """What workers run: `main(connection, *arguments)`, which speaks as the picture says."""

    main: Callable[..., None]
    arguments: tuple[object, ...] = ()
    check_seconds: float = 90.0  # for one check, before its worker is given up


@dataclass
class _Worker:
    job: Job
    process: SpawnProcess = field(init=False)
    pipe: Connection = field(init=False)
    description: tuple[str, ...] = field(init=False)
    titles: list[tuple[Section, str]] = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=self.job.main, args=(theirs, *self.job.arguments), daemon=False
        )
        self.process.start()
        theirs.close()
        answer = self.ask(None, _START_SECONDS)
        if isinstance(answer, str):
            self.end()
            raise NoDeviceError(answer)
        self.description, self.titles = answer

    def ask(self, question: int | None, seconds: float) -> object:
        """The answer, or what became of the worker instead."""
        try:
            if question is not None:
                self.pipe.send(question)
            if not self.pipe.poll(seconds):
                return f"no answer within {seconds:.0f} s"
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(5)
            return f"its process ended with status {self.process.exitcode}"

    def end(self, *, patience: float = 2.0) -> None:
        """Ends the process, whatever it does; it has so many seconds to end by itself."""
        self.pipe.close()
        self.process.join(patience)
        if self.process.is_alive():
            pid = self.process.pid
            if os.getpgid(pid) == pid:  # it leads a group: whatever it started ends with it
                os.killpg(pid, signal.SIGKILL)
            self.process.kill()
            self.process.join()


class Supervisor:
    """Runs all checks of a job within a budget of seconds."""

    def __init__(self, job: Job, budget_seconds: float, show: Callable[[Outcome], None]) -> None:
        """Starts the first worker. Raises NoDeviceError with what is missing."""
        self._job = job
        self._start = time.monotonic()
        self._budget = budget_seconds
        self._show = show
        self._worker: _Worker | None = _Worker(job)
        self.description = self._worker.description
        self._titles = self._worker.titles

    def run(self) -> list[Outcome]:
        """What came of every check; `show` sees each at once."""
        try:
            return self._all()
        finally:
            self._drop_worker()

    def _all(self) -> list[Outcome]:
        outcomes = []
        for index, (section, name) in enumerate(self._titles):
            left = self._start + ENDS[section] * self._budget - time.monotonic()
            if left <= 0:
                outcome = _without(section, name, Status.SKIPPED, "no time left for this section")
            else:
                outcome = self._one(index, min(self._job.check_seconds, left + _OVERTIME_SECONDS))
            self._show(outcome)
            outcomes.append(outcome)
        return outcomes

    def _one(self, index: int, seconds: float) -> Outcome:
        section, name = self._titles[index]
        try:
            if self._worker is None:
                self._worker = _Worker(self._job)
            answer = self._worker.ask(index, seconds)
        except NoDeviceError as error:
            answer = f"no worker could be started: {error}"
        if isinstance(answer, tuple):
            outcome, usable = answer
            if not usable:
                self._drop_worker()
            return outcome
        self._drop_worker(patience=0.0)
        return _without(section, name, Status.FAILED, str(answer))

    def _drop_worker(self, patience: float = 2.0) -> None:
        if self._worker is not None:
            self._worker.end(patience=patience)
        self._worker = None


def _without(section: Section, name: str, status: Status, why: str) -> Outcome:
    return Outcome(section, name, status, Findings(why))
