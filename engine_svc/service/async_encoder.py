"""The event loop's side of an encoder: who is alive, and whose results have all come.

Everything here runs on the event loop, so nothing is locked. The bound on what may wait is kept
here too, so that the loop's thread never sees what is refused.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.rpc.code_pb2 import Code
from octavo.logs import request_fields

from engine_svc.encoding.call import EncoderCall
from engine_svc.encoding.loop import CancelCall, SubmitCall
from engine_svc.engine import Load, Stop
from engine_svc.service import errors
from engine_svc.service.kv_events import KvEventLog
from engine_svc.service.request_story import RequestStory

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_svc.encoding.call import EncoderInput
    from engine_svc.encoding.loop import EncoderLoop, EncoderReport
    from engine_svc.service.metrics import EngineMetrics
    from engine_svc.service.tracing import RequestTracer
    from kernels.backend import Float32s

request_log = logging.getLogger("octavo.engine.requests")


@dataclass(slots=True, eq=False)
class _LiveCall:
    """A call from its submission to its end."""

    call: EncoderCall
    request_id: str
    traceparent: str
    vectors: dict[int, Float32s]  # by the input's number
    done: asyncio.Future[list[Float32s]]

    @property
    def num_left(self) -> int:
        return len(self.call.inputs) - len(self.vectors)

    @property
    def num_tokens_left(self) -> int:
        inputs = enumerate(self.call.inputs)
        return sum(len(item.token_ids) for i, item in inputs if i not in self.vectors)


class AsyncEncoder:
    """Submits to an encoder's loop and gathers its results. A `ServedEngine`."""

    def __init__(
        self,
        loop: EncoderLoop,
        metrics: EngineMetrics,
        *,
        max_queued_inputs: int,
        max_queued_tokens: int,
        stall_timeout: float,
        clock: Callable[[], float] = time.monotonic,
        tracer: RequestTracer | None = None,
    ) -> None:
        """Beyond so many inputs or tokens that are alive calls are refused; one that comes while
        nothing is alive is taken whatever its size. Times are in seconds of `clock`, the loop's."""
        self._loop = loop
        self._metrics = metrics
        self._max_queued_inputs = max_queued_inputs
        self._max_queued_tokens = max_queued_tokens
        self._stall_timeout = stall_timeout
        self._clock = clock
        self._tracer = tracer
        self._keys = itertools.count()
        self._live: dict[int, _LiveCall] = {}
        self._num_inputs = 0
        self._num_tokens = 0
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._watchers: set[asyncio.Event] = set()
        self.kv_events = KvEventLog("", 0)
        self.closing = asyncio.Event()
        self.failed = asyncio.Event()

    def start(self) -> None:
        """Starts the loop; its reports come to the running event loop, one call each."""
        events = asyncio.get_running_loop()
        self._loop.start(
            lambda report: events.call_soon_threadsafe(self._deliver, report),
            lambda: events.call_soon_threadsafe(self._fail),
        )

    @property
    def load(self) -> Load:
        """What runs is the step's inputs; what waits is all else that was submitted."""
        running = self._loop.num_running
        return Load(
            num_running=running,
            num_waiting=max(0, self._num_inputs - running),
            num_uncomputed_tokens=self._num_tokens,
            step_seconds=self._loop.step_seconds,
            phases=self._loop.phases,
        )

    @property
    def num_live_inputs(self) -> int:
        """Inputs that were submitted and have no result yet."""
        return self._num_inputs

    @property
    def is_draining(self) -> bool:
        """Whether new requests are refused for good."""
        return self._draining

    @property
    def is_broken(self) -> bool:
        """Whether the loop has ended by a fault."""
        return self.failed.is_set()

    @property
    def is_stalled(self) -> bool:
        """Whether the present step makes no progress."""
        return self._loop.pending_seconds() > self._stall_timeout

    async def compute(
        self,
        inputs: tuple[EncoderInput, ...],
        *,
        request_id: str = "",
        priority: int = 0,
        deadline: float | None = None,
        traceparent: str = "",
    ) -> list[Float32s]:
        """What each input gives. Cancelling drops what no step has taken yet.

        `deadline` is of the engine's clock. Raises RequestError.
        """
        try:
            live = self._submit(inputs, request_id, priority, deadline, traceparent)
        except errors.RequestError as error:
            self.refused(request_id, traceparent, error)
            raise
        try:
            return await live.done
        finally:
            if live.call.key in self._live:  # the caller has gone
                self._end(live, "abort")

    def _submit(
        self,
        inputs: tuple[EncoderInput, ...],
        request_id: str,
        priority: int,
        deadline: float | None,
        traceparent: str,
    ) -> _LiveCall:
        if self._draining:
            self._metrics.on_rejected("draining")
            raise errors.draining()
        if self.is_stalled or self.is_broken:
            self._metrics.on_rejected("overloaded")
            raise errors.overloaded("the engine does not get on with its work")
        num_tokens = sum(len(item.token_ids) for item in inputs)
        self._check_room(len(inputs), num_tokens)
        call = EncoderCall(next(self._keys), inputs, self._clock(), priority, deadline)
        done: asyncio.Future[list[Float32s]] = asyncio.get_running_loop().create_future()
        live = _LiveCall(call, request_id, traceparent, {}, done)
        self._live[call.key] = live
        self._num_inputs += len(inputs)
        self._num_tokens += num_tokens
        self._empty.clear()
        self._loop.send(SubmitCall(call))
        self._notify_watchers()
        return live

    def _check_room(self, num_inputs: int, num_tokens: int) -> None:
        if not self._live:
            return
        for kind, alive, more, limit, flag in (
            ("inputs", self._num_inputs, num_inputs, self._max_queued_inputs, "reqs"),
            ("tokens", self._num_tokens, num_tokens, self._max_queued_tokens, "tokens"),
        ):
            if alive + more > limit:
                self._metrics.on_rejected("queue_full")
                raise errors.queue_full(
                    f"{alive} {kind} wait or run and {more} more would exceed {limit} "
                    f"(--max-num-queued-{flag})",
                    self._retry_seconds(),
                )

    def _retry_seconds(self) -> float:
        """When about half of what is alive will have been computed."""
        steps = self._num_inputs / max(1, self._loop.num_running)
        return min(max(self._loop.step_seconds * steps / 2, 0.5), 30.0)

    def _deliver(self, report: EncoderReport) -> None:
        if report.num_step_tokens:
            self._metrics.on_step(report.num_step_tokens, report.step_seconds)
        for scheduled, vector in report.results:
            live = self._live.get(scheduled.call.key)
            if live is None:
                continue
            num_tokens = len(scheduled.input.token_ids)
            live.vectors[scheduled.number] = vector
            self._num_inputs -= 1
            self._num_tokens -= num_tokens
            self._metrics.on_encoded(num_tokens, live.call.arrival, report.started_at, report.at)
            if not live.num_left:
                self._finish(live)
        for key, stage in report.expired:
            self._end_key(key, "timeout", errors.deadline_exceeded(stage))
        for key, message in report.failed:
            self._end_key(key, "error", errors.RequestError(Code.INTERNAL, message))
        self._notify_watchers()

    def _finish(self, live: _LiveCall) -> None:
        self._remove(live, "stop")
        if not live.done.done():
            live.done.set_result([live.vectors[i] for i in range(len(live.call.inputs))])

    def _end_key(self, key: int, label: str, error: errors.RequestError) -> None:
        live = self._live.get(key)
        if live is not None:
            self._end(live, label, error)

    def _end(self, live: _LiveCall, label: str, error: errors.RequestError | None = None) -> None:
        """Ends a call before all its results are there, in the loop as well."""
        self._loop.send(CancelCall(live.call.key))
        self._num_inputs -= live.num_left
        self._num_tokens -= live.num_tokens_left
        self._metrics.on_not_encoded(live.num_left, label)
        self._remove(live, label, error)
        if error is not None and not live.done.done():
            live.done.set_exception(error)

    def _remove(
        self, live: _LiveCall, outcome: str, error: errors.RequestError | None = None
    ) -> None:
        del self._live[live.call.key]
        if not self._live:
            self._empty.set()
        request_log.info(
            "request_id=%s outcome=%s inputs=%d computed=%d seconds=%.3f",
            live.request_id,
            outcome,
            len(live.call.inputs),
            len(live.vectors),
            self._clock() - live.call.arrival,
            extra=request_fields(live.request_id, live.traceparent),
        )
        if self._tracer is not None:
            self._tracer.ended(_story(live, outcome), self._clock(), error)

    def refused(self, request_id: str, traceparent: str, error: errors.RequestError) -> None:
        """A call came to nothing before it was alive."""
        if self._tracer is not None:
            self._tracer.refused("embeddings", request_id, traceparent, error)

    async def flush_cache(self) -> int:
        """There is no cache: 0."""
        return 0

    def start_draining(self) -> None:
        """Refuses new requests from now on."""
        self._draining = True
        self._notify_watchers()

    async def drained(self) -> None:
        """Returns once no call is alive."""
        await self._empty.wait()

    def end_all(self) -> None:
        """Ends every call with UNAVAILABLE."""
        for live in list(self._live.values()):
            self._end(live, "abort", errors.draining())

    def stop(self, timeout: float) -> bool:
        """Ends the loop's thread; False if it did not end within `timeout` seconds."""
        self._loop.send(Stop())
        return self._loop.join(timeout)

    def watch(self) -> asyncio.Event:
        """An event that is set whenever the load may have changed, until `unwatch`."""
        event = asyncio.Event()
        self._watchers.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        """Forgets an event of `watch`."""
        self._watchers.discard(event)

    def send_heartbeats(self, quiet_seconds: float) -> None:
        """Nothing: a call has no stream that could carry one."""

    def _fail(self) -> None:
        self.failed.set()
        self.end_all()
        self._notify_watchers()

    def _notify_watchers(self) -> None:
        for event in self._watchers:
            event.set()


def _story(live: _LiveCall, ending: str) -> RequestStory:
    call = live.call
    return RequestStory(
        "embeddings",
        live.request_id,
        live.traceparent,
        call.arrival,
        num_prompt_tokens=sum(len(item.token_ids) for item in call.inputs),
        first_scheduled_at=call.first_scheduled_at,
        endings=[ending],
    )
