"""Dispatches planned steps to whatever computes them. Tests put a fake here, and only here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine_svc.batch import SampledTokens, ScheduledBatch
    from engine_svc.worker.model_runner import ModelRunner
    from kernels.backend import PackedAdapter


class WorkerLostError(Exception):
    """What computes is gone for good: no further step can work, and only a new engine helps."""


class Executor(Protocol):
    """Computes steps, one at a time and in order, for the engine's thread."""

    def submit(self, batch: ScheduledBatch) -> SampledTokens:
        """Computes one step and returns what it produced.

        Requests whose logits are unusable are named in `failed`; whatever is raised means that the
        worker's state is lost, and with it every request. WorkerLostError ends the engine.
        """
        ...

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts a packed LoRA adapter into a slot, or empties it, while no step is being computed.

        No step that was submitted before may see the change. WorkerLostError ends the engine.
        """
        ...

    def close(self) -> None:
        """Lets the worker go. May be called twice."""
        ...


class LocalExecutor:
    """Runs the worker in the caller's thread."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner: ModelRunner | None = runner

    def submit(self, batch: ScheduledBatch) -> SampledTokens:
        """Computes one step. Raises RuntimeError once closed."""
        if self._runner is None:
            raise RuntimeError("the executor is closed")
        return self._runner.execute(batch)

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts an adapter into a slot, or empties it. Raises RuntimeError once closed."""
        if self._runner is None:
            raise RuntimeError("the executor is closed")
        self._runner.set_adapter(slot, adapter)

    def close(self) -> None:
        """Drops the worker, and with it the weights and the KV pool."""
        self._runner = None
