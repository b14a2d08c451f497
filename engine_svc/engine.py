"""The engine's loop: continuous batching, on a thread of its own.

    commands ──▶ take ──▶ expire ──▶ schedule ──▶ submit ──▶ update ──▶ report ──▶ event loop
                  ▲                                                        │
                  └────────────── as long as anything is alive ────────────┘

Where a device computes by itself, what is updated is the step before the one that was just
submitted, so that the device has its next step while this thread takes in the last (`steps`).

Requests join and leave between any two steps, so a step always carries whoever can use it. All that
one turn has to tell goes to the event loop in one report. With nothing alive the loop checks that
no block leaked and sleeps until a command comes.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from engine_svc.batch import SampledTokens
from engine_svc.scheduling.block_pool import IntegrityError
from engine_svc.scheduling.request import RequestStatus
from engine_svc.scheduling.scheduler import QueueFull
from engine_svc.steps import steps_of
from engine_svc.worker.executor import WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_svc.batch import ScheduledBatch
    from engine_svc.scheduling.kv_cache_manager import KVCacheManager
    from engine_svc.scheduling.request import Request, Stage
    from engine_svc.scheduling.scheduler import Scheduler
    from engine_svc.scheduling.step_outputs import FinishedRequest, StepOutputs
    from engine_svc.steps import ComputedStep
    from engine_svc.worker.executor import Executor
    from kernels.backend import PackedAdapter

log = logging.getLogger(__name__)

_STEP_FAILED = "the engine failed to compute this request"
# A failing step ends the requests in it, so one bad request cannot fail two. Several in a row mean
# that the worker is broken, and a new process is the only cure.
_MAX_FAILED_STEPS = 3
# If all that is alive has to wait for something outside, for example a deadline.
_NOTHING_TO_SCHEDULE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Submit:
    """Start all choices of one logical request, or none."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End requests and free their blocks."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlushCache:
    """Forget the prefix cache; `done` gets the number of blocks, on the engine's thread."""

    done: Callable[[int], object]


@dataclass(frozen=True, slots=True)
class SetAdapter:
    """Put a packed LoRA adapter into a slot, or empty it.

    `done` gets whether it worked, on the engine's thread. No request of the slot's former adapter
    may be alive when this is sent.
    """

    slot: int
    adapter: PackedAdapter | None
    done: Callable[[bool], object]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the loop after this turn."""


@dataclass(frozen=True, slots=True)
class LoseWorker:
    """End the loop by a fault: what computes is gone, as the message says."""

    message: str


Command: TypeAlias = Submit | Cancel | FlushCache | SetAdapter | Stop | LoseWorker


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Where the time of all steps so far went, on the engine's thread."""

    schedule: float = 0.0  # taking commands, planning, taking in what was computed
    kernels: float = 0.0  # the back end
    sample: float = 0.0  # the worker around it: filling arrays, sampling, log-probabilities

    def plus(self, schedule: float, kernels: float, sample: float) -> StepSeconds:
        """With one more step."""
        return StepSeconds(self.schedule + schedule, self.kernels + kernels, self.sample + sample)


@dataclass(frozen=True, slots=True)
class Load:
    """The engine's state between two steps."""

    num_running: int = 0
    num_waiting: int = 0
    num_uncomputed_tokens: int = 0
    num_free_blocks: int = 0
    num_blocks: int = 0
    step_seconds: float = 0.0  # smoothed
    kernel_cpu_seconds: float = 0.0  # of all steps so far
    phases: StepSeconds = StepSeconds()
    queue_wait_seconds: tuple[float, ...] = ()  # for each WaitReason, where any is measured


@dataclass(slots=True)
class Report:
    """What one turn of the loop has to tell. Times are of the engine's clock."""

    refused: list[tuple[Submit, QueueFull]] = field(default_factory=list)
    ended_at_once: list[FinishedRequest] = field(default_factory=list)
    expired: list[tuple[int, Stage]] = field(default_factory=list)  # keys
    lost: list[int] = field(default_factory=list)  # keys of requests that a failed step took along
    outputs: StepOutputs | None = None
    num_step_tokens: int = 0
    # From the first command taken to the outputs, without what was done for other steps meanwhile.
    step_seconds: float = 0.0
    kv_stored: bytes = b""  # hashes of blocks that can be found now, one after another
    kv_removed: bytes = b""
    at: float = 0.0


class Engine:
    """Runs scheduler and executor; its public methods may be called from any thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        kv: KVCacheManager,
        executor: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._kv = kv
        self._executor = executor
        self._steps = steps_of(executor, scheduler, clock)
        self._clock = clock
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._publish: Callable[[Report], object] = lambda _: None
        self._on_fatal: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._live: dict[int, Request] = {}  # to know who is lost with a failed step
        self._stopping = False
        self._failed_steps = 0
        self._kernel_cpu_seconds = 0.0
        self._phases = StepSeconds()
        self._integrity_violation: str | None = None
        # When the turn that is under way, or due, began; None while idle.
        self._busy_since: float | None = None
        self._load = self._measure()

    def start(self, publish: Callable[[Report], object], on_fatal: Callable[[], object]) -> None:
        """Starts the loop. Both functions are called on its thread and must not block; `on_fatal`
        says that the loop has ended for good."""
        self._publish = publish
        self._on_fatal = on_fatal
        self._thread.start()

    def send(self, command: Command) -> None:
        """Hands the loop a command, to be taken before the next step."""
        if self._busy_since is None:
            self._busy_since = self._clock()
        self._commands.put(command)

    def lose_worker(self, message: str) -> None:
        """Ends the loop by a fault before its next step.

        All are told at once: the present step may wait for what is lost, and never end.
        """
        self.send(LoseWorker(message))
        self._on_fatal()

    def join(self, timeout: float) -> bool:
        """Waits for the loop to end after `Stop`; False if it did not within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def load(self) -> Load:
        """The state after the last turn."""
        return self._load

    @property
    def integrity_violation(self) -> str | None:
        """What the check at idle found wrong, if anything."""
        return self._integrity_violation

    def pending_seconds(self) -> float:
        """How long the present turn has been under way; 0 while idle, however long that lasts."""
        since = self._busy_since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except WorkerLostError as error:
            log.critical("the engine's loop has ended: %s", error)
            self._on_fatal()
        except Exception:
            log.exception("the engine's loop has ended")
            self._on_fatal()
        finally:
            self._executor.close()

    def _turn(self) -> None:
        report = Report()
        started = self._take_commands(report)
        for request in self._scheduler.expire(self._clock()):
            self._live.pop(request.key, None)
            report.expired.append((request.key, request.stage))
        step = self._steps.advance(started)
        if step is not None:
            report.num_step_tokens = step.batch.num_tokens
            report.outputs = self._take_in(step, report)
        self._load = self._measure()
        report.kv_stored, report.kv_removed = self._kv.pool.take_changes()
        report.at = self._clock()
        self._publish(report)
        if self._steps.in_flight:
            return
        if not self._scheduler.has_work:
            self._become_idle()
        elif step is None:
            time.sleep(_NOTHING_TO_SCHEDULE_SECONDS)

    def _take_commands(self, report: Report) -> float:
        """Takes all commands there are, having waited for one if nothing is alive; returns when it
        began to."""
        if not self._scheduler.has_work and not self._steps.in_flight:
            command = self._commands.get()
            self._busy_since = self._clock()
            self._apply(command, report)
        started = self._busy_since = self._clock()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return started
            self._apply(command, report)

    def _apply(self, command: Command, report: Report) -> None:
        match command:
            case Submit(requests):
                try:
                    ended = self._scheduler.add_group(requests)
                except QueueFull as full:
                    report.refused.append((command, full))
                    return
                report.ended_at_once += ended
                self._live |= {request.key: request for request in requests}
                for finished in ended:
                    del self._live[finished.key]
            case Cancel(keys):
                for key in keys:
                    self._scheduler.cancel(key)
                    self._live.pop(key, None)
            case FlushCache(done):
                done(self._scheduler.flush_cache())
            case SetAdapter(slot, adapter, told):
                told(self._set_adapter(slot, adapter))
            case Stop():
                self._stopping = True
            case LoseWorker(message):
                raise WorkerLostError(message)

    def _set_adapter(self, slot: int, adapter: PackedAdapter | None) -> bool:
        try:
            self._executor.set_adapter(slot, adapter)
        except WorkerLostError:
            raise
        except Exception:
            log.exception("adapter slot %d could not be changed", slot)
            return False
        return True

    def _take_in(self, step: ComputedStep, report: Report) -> StepOutputs:
        if step.sampled is None:
            sampled = self._lose_worker_state(step.batch, report)
        else:
            sampled = step.sampled
            self._failed_steps = 0
            self._kernel_cpu_seconds += sampled.cpu_seconds
        outputs = self._scheduler.update(step.batch, sampled, step.compute_seconds)
        for batch in step.abandoned:
            self._scheduler.abandon(batch)
        for key in (end.key for ends in (outputs.finished, outputs.failed) for end in ends):
            self._live.pop(key, None)
        schedule = step.schedule_seconds + self._clock() - step.computed
        kernels = sampled.kernel_seconds
        report.step_seconds = schedule + step.worker_seconds
        self._phases = self._phases.plus(schedule, kernels, step.worker_seconds - kernels)
        return outputs

    def _lose_worker_state(self, batch: ScheduledBatch, report: Report) -> SampledTokens:
        """Ends all that run, those in the failed step and the others; who waits is unharmed."""
        self._failed_steps += 1
        if self._failed_steps == _MAX_FAILED_STEPS:
            raise WorkerLostError(f"{_MAX_FAILED_STEPS} steps failed in a row")
        in_step = {chunk.key for chunk in batch.chunks}
        for key, request in list(self._live.items()):
            if request.status is RequestStatus.RUNNING and key not in in_step:
                self._scheduler.cancel(key)
                del self._live[key]
                report.lost.append(key)
        return SampledTokens(tokens=(), failed=tuple((key, _STEP_FAILED) for key in in_step))

    def _become_idle(self) -> None:
        """Proves that all that ended gave its blocks back, then is not busy."""
        try:
            self._scheduler.check_integrity()
        except IntegrityError as violation:
            log.critical("integrity violation: %s", violation)
            self._integrity_violation = str(violation)
        self._busy_since = None

    def _measure(self) -> Load:
        return Load(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_uncomputed_tokens=self._scheduler.num_uncomputed_tokens,
            num_free_blocks=self._kv.num_free_blocks,
            num_blocks=self._kv.num_blocks,
            step_seconds=self._scheduler.step_seconds,
            kernel_cpu_seconds=self._kernel_cpu_seconds,
            phases=self._phases,
            queue_wait_seconds=self._scheduler.queue_wait_seconds,
        )
