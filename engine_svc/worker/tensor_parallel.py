"""Runs the worker in the caller's thread and has the other ranks take part in its steps."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from engine_svc.parallel.step_wire import stop
from engine_svc.worker.executor import WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_svc.batch import SampledTokens, ScheduledBatch
    from engine_svc.parallel.processes import WorkerProcesses
    from engine_svc.parallel.ranks import Ranks
    from engine_svc.worker.model_runner import ModelRunner
    from kernels.backend import PackedAdapter

log = logging.getLogger(__name__)

_STOP_SECONDS = 2.0  # for ranks to end by themselves
_FATE_SECONDS = 0.5  # for the system to say how a process ended


class TensorParallelExecutor:
    """Rank 0 of several. Implements `Executor`.

    A rank that is lost takes the others along: the processes started here are killed at once, and
    those on other nodes end as their connections do.
    """

    def __init__(self, runner: ModelRunner, ranks: Ranks, processes: WorkerProcesses) -> None:
        """The runner's decoder leads these ranks; `processes` are those of this node."""
        self._runner: ModelRunner | None = runner
        self._ranks = ranks
        self._processes = processes
        self._ending = threading.Lock()
        self._closed = False
        self._lost: str | None = None

    def submit(self, batch: ScheduledBatch) -> SampledTokens:
        """Computes one step. Raises RuntimeError once closed, WorkerLostError without a rank."""
        if self._runner is None:
            raise RuntimeError("the executor is closed")
        try:
            return self._runner.execute(batch)
        except WorkerLostError as error:
            raise self._lost_in(error) from error

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts an adapter into a slot of every rank, or empties it. Raises as `submit` does."""
        if self._runner is None:
            raise RuntimeError("the executor is closed")
        try:
            self._runner.set_adapter(slot, adapter)
        except WorkerLostError as error:
            raise self._lost_in(error) from error

    def watch(self, on_lost: Callable[[str], object]) -> None:
        """Has `on_lost` told, on another thread, which rank is lost and how, also between steps."""

        def lose(rank: int) -> None:
            lost = self._lose(lambda: self._processes.fate(rank, _FATE_SECONDS))
            if lost is not None:
                on_lost(lost)

        self._ranks.watch(lose)

    def close(self) -> None:
        """Ends the other ranks and drops the worker. May be called twice."""
        self._runner = None
        with self._ending:
            if self._closed or self._lost is not None:
                return
            self._closed = True
            self._ranks.leave()
            with suppress(WorkerLostError):
                self._ranks.tell(stop())
            if not self._processes.wait(_STOP_SECONDS):
                log.error("ranks did not end within %g s and are killed", _STOP_SECONDS)
            self._processes.kill()
            self._ranks.close()

    def _lost_in(self, error: WorkerLostError) -> WorkerLostError:
        """Ends the ranks after a call failed; what to raise for it."""
        failed = str(error)
        lost = self._lose(lambda: self._processes.ended(_FATE_SECONDS) or failed)
        return WorkerLostError(lost or failed)

    def _lose(self, describe: Callable[[], str]) -> str | None:
        """Ends the ranks by a fault, once, and says which; None where they were ended already."""
        with self._ending:
            if self._closed:
                return None
            if self._lost is None:
                self._lost = describe()
                self._ranks.leave()
                log.critical("%s: the engine cannot go on and ends", self._lost)
                self._processes.kill()
            return self._lost
