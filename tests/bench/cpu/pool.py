"""Keeps the systems of a comparison running side by side, and lets one work at a time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from tests.bench.cpu.machine import CpuUse, CpuWatch, memory_of
from tests.bench.cpu.samples import Sample
from tests.bench.cpu.systems import NotAvailableError, System
from tests.bench.cpu.work import Shape, Work, WorkMaker

WARM_UP = Shape(concurrency=2, num_requests=4, prompt_tokens=200, output_tokens=16)
IDLE_SECONDS = 1.5
MAX_IDLE_CORES = 0.03  # above, a system that waits is stopped while others are measured
SETTLE_SECONDS = 0.3

Key = tuple[str, str]  # (system, model)


@dataclass(slots=True)
class _Running:
    system: System
    facts: dict[str, Any]
    is_spinning: bool = False


@dataclass(slots=True)
class Pool:
    """Starts systems when they are first wanted; `facts` gathers start-up and memory of each."""

    make: Callable[[str, str], System]
    work_maker: Callable[[str], WorkMaker]
    say: Callable[[str], None]
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    _running: dict[Key, _Running] = field(default_factory=dict)
    _missing: dict[Key, str] = field(default_factory=dict)

    def want(self, keys: Collection[Key], later: Collection[Key]) -> dict[Key, str]:
        """Starts `keys`, stops what is neither wanted now nor later; why some cannot be had."""
        for key in list(self._running):
            if key not in keys and key not in later:
                self._stop(key)
        for key in keys:
            if key not in self._running and key not in self._missing:
                try:
                    self._start(key)
                except NotAvailableError as error:
                    self.say(f"{key[0]}: {error}")
                    self._missing[key] = str(error)
        return {key: self._missing[key] for key in keys if key in self._missing}

    def turn(self, key: Key, work: Work) -> tuple[list[Sample], CpuUse]:
        """One system works, the others wait. Raises NotAvailableError if it has ended.

        It is then started again when a later row wants it.
        """
        running = self._running[key]
        try:
            running.system.program.check_alive()
        except NotAvailableError:
            del self._running[key]
            raise
        if running.is_spinning:
            running.system.program.send(signal.SIGCONT)
        time.sleep(SETTLE_SECONDS)
        watch = CpuWatch(running.system.processes())
        samples = running.system.measure(work)
        use = watch.stop()
        if running.is_spinning:
            running.system.program.send(signal.SIGSTOP)
        return samples, use

    def metric(self, key: Key, name: str) -> float | None:
        """One of a system's own metrics, or None."""
        return self._running[key].system.metric(name)

    def close(self) -> None:
        """Stops all."""
        for key in list(self._running):
            self._stop(key)

    def _start(self, key: Key) -> None:
        name, model = key
        self.say(f"start {name} with {model}")
        system = self.make(name, model)
        started = time.perf_counter()
        try:
            system.start()
            facts: dict[str, Any] = {"start_s": round(time.perf_counter() - started, 2)}
            facts["ready"] = asdict(memory_of(_all(system)))
            system.measure(self.work_maker(model).make(WARM_UP, "warm-up"))
        except BaseException:
            system.program.stop()
            raise
        running = _Running(system, facts)
        time.sleep(SETTLE_SECONDS)
        watch = CpuWatch(system.processes())
        time.sleep(IDLE_SECONDS)
        use = watch.stop()
        cores = (sum(use.by_process.values()) - use.by_process["client"]) / use.seconds
        facts["idle_cores"] = round(cores, 3)
        running.is_spinning = cores > MAX_IDLE_CORES
        if running.is_spinning:
            self.say(f"{name} uses {cores:.2f} cores while it waits: stopped between its turns")
            system.program.send(signal.SIGSTOP)
        self._running[key] = running

    def _stop(self, key: Key) -> None:
        running = self._running.pop(key)
        try:
            running.facts["end"] = asdict(memory_of(_all(running.system)))
        except psutil.NoSuchProcess:
            running.facts["end"] = None  # it ended by itself
        self.facts[f"{key[0]} {key[1]}"] = running.facts
        running.system.program.stop()


def _all(system: System) -> list[psutil.Process]:
    return [process for processes in system.processes().values() for process in processes]
