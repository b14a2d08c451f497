"""Dispatches steps to a decoder that computes while the engine's thread plans the next one.

engine's thread   prepare N ▸ prepare N+1 ▸ ┄ wait ┄ ▸ complete N ▸ prepare N+2 ▸ …
device                      [        step N         ][       step N+1        ][ …
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from engine_svc.batch import SampledTokens
from engine_svc.worker.executor import Executor

if TYPE_CHECKING:
    from engine_svc.batch import ScheduledBatch
    from engine_svc.worker.model_runner import ModelRunner, PreparedStep
    from kernels.backend import AsyncDecoder, BegunStep, PackedAdapter, StepResult


class StepInFlight(Protocol):
    """A step that is being computed, or was."""

    def result(self) -> SampledTokens:
        """Waits for the step and returns what it produced. To be called once, in order."""
        ...


class DispatchingExecutor(Executor, ABC):
    """An executor whose steps can be begun one ahead; it says so by deriving from this."""

    @abstractmethod
    def dispatch(self, batch: ScheduledBatch) -> StepInFlight:
        """Starts one step, with at most one other in flight. Raises RuntimeError once closed.

        Whatever it or a result raises means, as with `submit`, that the worker's state is lost:
        nothing comes of other steps in flight either.
        """


class DispatchedStep:
    """A step in flight of this process's worker. Implements `StepInFlight`."""

    def __init__(
        self,
        runner: ModelRunner,
        step: PreparedStep | None,
        begun: BegunStep | None,
        seconds: float,
    ) -> None:
        """`seconds` is what the decoder took to begin it."""
        self._runner = runner
        self._step = step
        self._begun = begun
        self._seconds = seconds
        self._computed: StepResult | None = None
        self._error: Exception | None = None

    def result(self) -> SampledTokens:
        """As `StepInFlight`."""
        self.wait()
        if self._error is not None:
            raise self._error
        if self._step is None or self._computed is None:
            return SampledTokens(())
        return self._runner.complete(self._step, self._computed, self._seconds)

    def wait(self) -> None:
        """Returns once the step is computed, or has failed, which `result` will say."""
        if self._begun is None:
            return
        started = time.perf_counter()
        begun, self._begun = self._begun, None
        try:
            self._computed = begun.result()
        except Exception as error:  # noqa: BLE001 -- raised by `result`
            self._error = error
        self._seconds += time.perf_counter() - started


class AheadExecutor(DispatchingExecutor):
    """Runs the worker in the caller's thread, and its decoder beside it."""

    def __init__(self, runner: ModelRunner, decoder: AsyncDecoder) -> None:
        """The decoder is the runner's."""
        self._runner: ModelRunner | None = runner
        self._decoder = decoder
        self._last: DispatchedStep | None = None

    def submit(self, batch: ScheduledBatch) -> SampledTokens:
        """Computes one step, with none in flight. Raises RuntimeError once closed."""
        return self.dispatch(batch).result()

    def dispatch(self, batch: ScheduledBatch) -> DispatchedStep:
        """As `DispatchingExecutor`."""
        runner, self._last = self._open(), None
        step = runner.prepare(batch)
        begun, started = None, time.perf_counter()
        if step is not None:
            begun = self._decoder.begin(step.inputs)
        self._last = DispatchedStep(runner, step, begun, time.perf_counter() - started)
        return self._last

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts an adapter into a slot, or empties it, once all steps in flight are computed."""
        runner = self._open()
        if self._last is not None:
            self._last.wait()
        runner.set_adapter(slot, adapter)

    def close(self) -> None:
        """Drops the worker, and with it the weights and the KV pool."""
        self._runner = self._last = None

    def _open(self) -> ModelRunner:
        if self._runner is None:
            raise RuntimeError("the executor is closed")
        return self._runner
