"""The encoder's loop, on a thread of its own: inputs of many calls in each step, no KV cache.

commands ──▶ take ──▶ expire ──▶ next inputs ──▶ encode ──▶ report ──▶ event loop
              ▲                                               │
              └────────────── as long as any input waits ─────┘
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from engine_svc.encoding.fair_queue import FairQueue
from engine_svc.engine import StepSeconds, Stop
from engine_svc.scheduling.deadlines import Deadlines
from engine_svc.worker.executor import WorkerLostError
from kernels.encoder import EncoderInputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine_svc.encoding.call import EncoderCall, ScheduledInput
    from kernels.backend import Float32s
    from kernels.encoder import Encoder

log = logging.getLogger(__name__)

STEP_FAILED = "the engine failed to compute this request"
NOT_FINITE = "the model's output for this request is not finite"
# As in the loop that generates: a bad call cannot fail so many steps, a broken worker does.
_MAX_FAILED_STEPS = 3
_SMOOTHING = 0.2  # weight of the latest step in the mean of their durations


@dataclass(frozen=True, slots=True)
class SubmitCall:
    """Compute all inputs of a call."""

    call: EncoderCall


@dataclass(frozen=True, slots=True)
class CancelCall:
    """Drop the inputs of a call that no step has taken yet."""

    key: int


Command: TypeAlias = SubmitCall | CancelCall | Stop


@dataclass(slots=True)
class EncoderReport:
    """What one turn of the loop has to tell. Times are of the engine's clock."""

    started_at: float = 0.0  # of the step
    at: float = 0.0
    num_step_tokens: int = 0
    step_seconds: float = 0.0  # from the inputs' choice to their results
    results: list[tuple[ScheduledInput, Float32s]] = field(default_factory=list)
    expired: list[tuple[int, str]] = field(default_factory=list)  # keys of calls, stages
    failed: list[tuple[int, str]] = field(default_factory=list)  # keys of calls, messages


class EncoderLoop:
    """Runs an encoder; its public methods may be called from any thread."""

    def __init__(
        self,
        encoder: Encoder,
        *,
        max_step_tokens: int,
        max_step_inputs: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A step has at most so many tokens and inputs, but always one input, however long."""
        self._encoder = encoder
        self._max_step_tokens = max_step_tokens
        self._max_step_inputs = max_step_inputs
        self._clock = clock
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._waiting = FairQueue()
        self._live: dict[int, EncoderCall] = {}
        self._deadlines = Deadlines()
        self._publish: Callable[[EncoderReport], object] = lambda _: None
        self._on_fatal: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="encoder", daemon=True)
        self._stopping = False
        self._failed_steps = 0
        self._step_seconds = 0.0
        self._phases = StepSeconds()
        # When the turn that is under way, or due, began; None while idle.
        self._busy_since: float | None = None
        self._num_running = 0

    def start(
        self, publish: Callable[[EncoderReport], object], on_fatal: Callable[[], object]
    ) -> None:
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

    def join(self, timeout: float) -> bool:
        """Waits for the loop to end after `Stop`; False if it did not within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def num_running(self) -> int:
        """Inputs of the step that is being computed."""
        return self._num_running

    @property
    def step_seconds(self) -> float:
        """Smoothed duration of a step."""
        return self._step_seconds

    @property
    def phases(self) -> StepSeconds:
        """Where the time of all steps so far went."""
        return self._phases

    def pending_seconds(self) -> float:
        """How long the present turn has been under way; 0 while idle, however long that lasts."""
        since = self._busy_since
        return 0.0 if since is None else max(0.0, self._clock() - since)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except Exception:
            log.exception("the encoder's loop has ended")
            self._on_fatal()

    def _turn(self) -> None:
        started = self._take_commands()
        report = EncoderReport()
        for key in self._deadlines.pop_expired(self._clock()):
            call = self._live.get(key)
            if call is not None:
                self._forget(key)
                report.expired.append((key, call.stage))
        step = self._waiting.take(self._max_step_tokens, self._max_step_inputs)
        if step:
            self._compute(step, report, started)
        self._num_running = 0
        report.at = self._clock()
        self._publish(report)
        if not self._waiting.num_inputs:
            self._busy_since = None

    def _take_commands(self) -> float:
        """Takes all commands there are, having waited for one if nothing is to be computed; returns
        when it began to."""
        if not self._waiting.num_inputs:
            command = self._commands.get()
            self._busy_since = self._clock()
            self._apply(command)
        started = self._busy_since = self._clock()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return started
            self._apply(command)

    def _apply(self, command: Command) -> None:
        match command:
            case SubmitCall(call):
                self._live[call.key] = call
                self._waiting.add(call)
                if call.deadline is not None:
                    self._deadlines.add(call.deadline, call.key, self._live)
            case CancelCall(key):
                self._forget(key)
            case Stop():
                self._stopping = True

    def _forget(self, key: int) -> None:
        self._live.pop(key, None)
        self._waiting.remove(key)

    def _compute(
        self, step: Sequence[ScheduledInput], report: EncoderReport, turn_started: float
    ) -> None:
        start = report.started_at = self._clock()
        for scheduled in step:
            if scheduled.call.first_scheduled_at is None:
                scheduled.call.first_scheduled_at = start
        self._num_running = len(step)
        inputs = _step_inputs(step)
        prepared = self._clock()
        try:
            vectors = self._encoder.encode(inputs)
        except Exception:
            log.exception("a step of %d inputs failed", len(step))
            self._failed_steps += 1
            if self._failed_steps == _MAX_FAILED_STEPS:
                raise WorkerLostError(f"{_MAX_FAILED_STEPS} steps failed in a row") from None
            for key in {scheduled.call.key for scheduled in step}:
                self._fail(key, STEP_FAILED, report)
            return
        self._failed_steps = 0
        computed = self._clock()
        seconds = computed - start
        mean = self._step_seconds or seconds
        self._step_seconds = mean + _SMOOTHING * (seconds - mean)
        report.num_step_tokens = len(inputs.token_ids)
        for scheduled, vector in zip(step, vectors, strict=True):
            key = scheduled.call.key
            if np.isfinite(vector).all():
                report.results.append((scheduled, vector))
                if not scheduled.call.num_waiting:
                    self._live.pop(key, None)
            elif key in self._live:
                self._fail(key, NOT_FINITE, report)
        ended = self._clock()
        report.step_seconds = ended - turn_started
        self._phases = self._phases.plus(
            schedule=start - turn_started,
            kernels=computed - prepared,
            sample=prepared - start + ended - computed,
        )

    def _fail(self, key: int, message: str, report: EncoderReport) -> None:
        self._forget(key)
        report.failed.append((key, message))


def _step_inputs(step: Sequence[ScheduledInput]) -> EncoderInputs:
    """The arrays of a step."""
    lengths = [len(scheduled.input.token_ids) for scheduled in step]
    starts = np.zeros(len(step) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    token_ids = np.empty(starts[-1], dtype=np.int32)
    positions = np.empty_like(token_ids)
    token_types = np.zeros_like(token_ids)
    for scheduled, start, stop in zip(step, starts[:-1], starts[1:], strict=True):
        token_ids[start:stop] = scheduled.input.token_ids
        positions[start:stop] = np.arange(stop - start)
        token_types[start + scheduled.input.first_segment : stop] = 1
    return EncoderInputs(token_ids, positions, token_types, starts)
