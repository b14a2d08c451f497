"""Rank 0's executor: its decoder has the other ranks take part; here a lost one is seen."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from engine_svc.parallel.step_wire import stop
from engine_svc.worker.executor import WorkerLostError
from engine_svc.worker.executor_ahead import DispatchingExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from engine_svc.batch import SampledTokens, ScheduledBatch
    from engine_svc.parallel.processes import WorkerProcesses
    from engine_svc.parallel.ranks import Ranks
    from engine_svc.worker.executor import Executor
    from engine_svc.worker.executor_ahead import StepInFlight
    from kernels.backend import PackedAdapter

log = logging.getLogger(__name__)

_STOP_SECONDS = 2.0  # for ranks to end by themselves
_FATE_SECONDS = 0.5  # for the system to say how a process ended


class TensorParallelExecutor:
    """Rank 0 of several. Implements `Executor`.

    A rank that is lost takes the others along: the processes started here are killed at once, and
    those on other nodes end as their connections do.
    """

    def __init__(self, worker: Executor, ranks: Ranks, processes: WorkerProcesses) -> None:
        """The worker's decoder leads these ranks; `processes` are those of this node."""
        self._worker = worker
        self._ranks = ranks
        self._processes = processes
        self._ending = threading.Lock()
        self._closed = False
        self._lost: str | None = None

    def submit(self, batch: ScheduledBatch) -> SampledTokens:
        """Computes one step. Raises RuntimeError once closed, WorkerLostError without a rank."""
        with self._losing():
            return self._worker.submit(batch)

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts an adapter into a slot of every rank, or empties it. Raises as `submit` does."""
        with self._losing():
            self._worker.set_adapter(slot, adapter)

    def watch(self, on_lost: Callable[[str], object]) -> None:
        """Has `on_lost` told, on another thread, which rank is lost and how, also between steps."""

        def lose(rank: int) -> None:
            lost = self._lose(lambda: self._processes.fate(rank, _FATE_SECONDS))
            if lost is not None:
                on_lost(lost)

        self._ranks.watch(lose)

    def close(self) -> None:
        """Ends the other ranks and drops the worker. May be called twice."""
        self._worker.close()
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

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Ends the ranks if a call fails, and says in its error which of them is lost."""
        try:
            yield
        except WorkerLostError as error:
            failed = str(error)
            lost = self._lose(lambda: self._processes.ended(_FATE_SECONDS) or failed)
            raise WorkerLostError(lost or failed) from error

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


class TensorParallelAheadExecutor(TensorParallelExecutor, DispatchingExecutor):
    """The same where the ranks' devices compute by themselves."""

    def __init__(
        self, worker: DispatchingExecutor, ranks: Ranks, processes: WorkerProcesses
    ) -> None:
        super().__init__(worker, ranks, processes)
        self._dispatching = worker

    def dispatch(self, batch: ScheduledBatch) -> StepInFlight:
        """As `DispatchingExecutor`. Both raise WorkerLostError without a rank."""
        with self._losing():
            return _WatchedStep(self._dispatching.dispatch(batch), self._losing)


class _WatchedStep:
    """A step of all ranks. Implements `StepInFlight`."""

    def __init__(
        self, step: StepInFlight, losing: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._step = step
        self._losing = losing

    def result(self) -> SampledTokens:
        """As `StepInFlight`. Raises WorkerLostError without a rank."""
        with self._losing():
            return self._step.result()
