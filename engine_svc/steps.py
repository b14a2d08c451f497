"""How the engine's thread takes steps through its executor: one at a time, or one ahead.

    one at a time   schedule N ▸ compute N ▸ update N ▸ schedule N+1 ▸ compute N+1 ▸ …
    one ahead       schedule N+1 ▸ dispatch N+1 ▸ wait for N ▸ update N ▸ schedule N+2 ▸ …

Where the thread itself computes, or waits for threads that use every core, there is nothing to
gain from planning meanwhile. Where a device computes, it never waits for Python as long as a step
takes longer than all else of a turn.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

from engine_svc.worker.executor import WorkerLostError
from engine_svc.worker.executor_ahead import DispatchingExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_svc.batch import SampledTokens, ScheduledBatch
    from engine_svc.scheduling.scheduler import Scheduler
    from engine_svc.worker.executor import Executor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ComputedStep:
    """A step whose results are there. Times are of the engine's clock, in seconds."""

    batch: ScheduledBatch
    sampled: SampledTokens | None  # None: it failed, and with it the worker's state is lost
    computed: float
    compute_seconds: float  # from its dispatch or, if that came later, the results before it
    schedule_seconds: float  # that the thread took commands and planned for it
    worker_seconds: float  # that the executor kept the thread
    abandoned: tuple[ScheduledBatch, ...] = ()  # steps in flight that are lost with it


class Steps(Protocol):
    """Plans steps and has them computed, for the engine's thread."""

    @property
    def in_flight(self) -> bool:
        """Whether a step's results are still to come."""
        ...

    def advance(self, started: float) -> ComputedStep | None:
        """Plans the next step, and waits for one; None if none was computed.

        `started` is when the turn began. Raises WorkerLostError.
        """
        ...


def steps_of(executor: Executor, scheduler: Scheduler, clock: Callable[[], float]) -> Steps:
    """One step ahead where the executor's device computes by itself."""
    if isinstance(executor, DispatchingExecutor):
        return StepsAhead(executor, scheduler, clock)
    return SingleSteps(executor, scheduler, clock)


class SingleSteps:
    """One step at a time. Implements `Steps`."""

    in_flight = False

    def __init__(
        self, executor: Executor, scheduler: Scheduler, clock: Callable[[], float]
    ) -> None:
        self._executor = executor
        self._scheduler = scheduler
        self._clock = clock

    def advance(self, started: float) -> ComputedStep | None:
        """Computes the next step, if there is anything to compute."""
        batch = self._scheduler.schedule()
        if batch is None:
            return None
        submitted = self._clock()
        sampled = _unless_failed(batch, lambda: self._executor.submit(batch))
        computed = self._clock()
        seconds = computed - submitted
        return ComputedStep(batch, sampled, computed, seconds, submitted - started, seconds)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step in flight: what to ask for its results, and when its turn and dispatch were."""

    batch: ScheduledBatch
    result: Callable[[], SampledTokens]
    started: float
    submitted: float
    dispatched: float


class StepsAhead:
    """A step is begun before the results of the last one are waited for. Implements `Steps`."""

    def __init__(
        self, executor: DispatchingExecutor, scheduler: Scheduler, clock: Callable[[], float]
    ) -> None:
        self._executor = executor
        self._scheduler = scheduler
        self._clock = clock
        self._flights: list[_Flight] = []  # oldest first
        self._computed = 0.0  # when the last step was

    @property
    def in_flight(self) -> bool:
        """Whether a step's results are still to come."""
        return bool(self._flights)

    def advance(self, started: float) -> ComputedStep | None:
        """Begins the next step, if it can be planned yet, then waits for the one before.

        The first step after a pause is only begun: the turn that plans its successor waits for it.
        """
        scheduler, flights = self._scheduler, self._flights
        batch = scheduler.schedule_ahead() if flights else scheduler.schedule()
        if batch is not None:
            flights.append(self._begin(batch, started))
            return self._wait(flights.pop(0), 0.0) if len(flights) > 1 else None
        return self._wait(flights.pop(0), self._clock() - started) if flights else None

    def _begin(self, batch: ScheduledBatch, started: float) -> _Flight:
        submitted = self._clock()
        try:
            result = self._executor.dispatch(batch).result
        except Exception as error:  # noqa: BLE001 -- raised when it is this step's turn
            result = partial(_raise, error)
        return _Flight(batch, result, started, submitted, self._clock())

    def _wait(self, flight: _Flight, planned: float) -> ComputedStep:
        """Waits for a step; this turn planned in vain for so many seconds."""
        waiting = self._clock()
        sampled = _unless_failed(flight.batch, flight.result)
        computed, before = self._clock(), self._computed
        self._computed = computed
        abandoned: tuple[ScheduledBatch, ...] = ()
        if sampled is None:
            abandoned = tuple(later.batch for later in self._flights)
            self._flights.clear()
        return ComputedStep(
            flight.batch,
            sampled,
            computed=computed,
            compute_seconds=computed - max(flight.submitted, before),
            schedule_seconds=flight.submitted - flight.started + planned,
            worker_seconds=flight.dispatched - flight.submitted + computed - waiting,
            abandoned=abandoned,
        )


def _unless_failed(
    batch: ScheduledBatch, compute: Callable[[], SampledTokens]
) -> SampledTokens | None:
    """What a step produced; None, and its traceback in the log, if it failed."""
    try:
        return compute()
    except WorkerLostError:
        raise
    except Exception:
        log.exception("step %d failed", batch.step)
        return None


def _raise(error: Exception) -> NoReturn:
    raise error
