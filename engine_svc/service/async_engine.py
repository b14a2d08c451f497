"""The event loop's side of the engine: who is alive, and who gets what of a report.

    Generate ─┐            ┌─▶ Submit, Cancel ─▶ engine's thread
              ├─ submit ───┤
    Session  ─┘            └─◀ deliver(report): each event to the stream of its request

Everything here runs on the event loop, so nothing is locked. A request leaves the table at once
when it ends or is cancelled; what the engine still says of it is passed over.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import TYPE_CHECKING

from google.rpc.code_pb2 import Code
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.engine import Cancel, FlushCache, Stop, Submit
from engine_svc.sampling_params import UNSATISFIABLE
from engine_svc.scheduling.request import FinishReason
from engine_svc.service import errors, events
from engine_svc.service.kv_events import KvEventLog
from engine_svc.service.live_request import Choice, LiveRequest, log_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine_svc.engine import Engine, Load, Report
    from engine_svc.scheduling.step_outputs import FinishedRequest, NewToken
    from engine_svc.service.embedding import EmbedSubmission
    from engine_svc.service.metrics import EngineMetrics
    from engine_svc.service.output_stream import OutputStream
    from engine_svc.service.request_story import Operation
    from engine_svc.service.submission import Submission
    from engine_svc.service.tracing import RequestTracer

log = logging.getLogger(__name__)

_LABELS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "abort",
}


class AsyncEngine:
    """Submits to an engine and fans its reports out."""

    def __init__(
        self,
        engine: Engine,
        metrics: EngineMetrics,
        *,
        instance_id: str,
        block_size: int,
        max_live_choices: int,
        stall_timeout: float,
        clock: Callable[[], float] = time.monotonic,
        tracer: RequestTracer | None = None,
    ) -> None:
        """`max_live_choices` bounds what may run and wait together; it saves the engine's thread
        from a flood that it would refuse anyway. Times are in seconds of `clock`, the engine's."""
        self._engine = engine
        self._metrics = metrics
        self._instance_id = instance_id
        self._max_live_choices = max_live_choices
        self._stall_timeout = stall_timeout
        self._clock = clock
        self._tracer = tracer
        self._keys = itertools.count()
        self._choices: dict[int, Choice] = {}
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._watchers: set[asyncio.Event] = set()
        self.kv_events = KvEventLog(instance_id, block_size)
        self.closing = asyncio.Event()  # long-lived calls end themselves
        self.failed = asyncio.Event()  # the engine's loop has ended by a fault

    def start(self) -> None:
        """Starts the engine; its reports come to the running event loop, one call each."""
        loop = asyncio.get_running_loop()
        self._engine.start(
            lambda report: loop.call_soon_threadsafe(self._deliver, report),
            lambda: loop.call_soon_threadsafe(self._fail),
        )

    @property
    def load(self) -> Load:
        """The engine's state after its last turn."""
        return self._engine.load

    @property
    def num_live_choices(self) -> int:
        """Choices that were submitted and have not ended."""
        return len(self._choices)

    @property
    def is_draining(self) -> bool:
        """Whether new requests are refused for good."""
        return self._draining

    @property
    def is_broken(self) -> bool:
        """Whether the engine's books are wrong or its loop has ended."""
        return self._engine.integrity_violation is not None or self.failed.is_set()

    @property
    def is_stalled(self) -> bool:
        """Whether the engine's present turn, or one that is due, makes no progress."""
        return self._engine.pending_seconds() > self._stall_timeout

    def submit(
        self, submission: Submission | EmbedSubmission, stream: OutputStream, deadline: float | None
    ) -> LiveRequest:
        """Starts a request whose events go to `stream`; `deadline` is of the engine's clock.

        Raises RequestError if the engine takes none. A full queue is told through the stream.
        """
        if self._draining:
            self._metrics.on_rejected("draining")
            raise errors.draining()
        if self.is_stalled or self.is_broken:
            self._metrics.on_rejected("overloaded")
            raise errors.overloaded("the engine does not get on with its work")
        if len(self._choices) + len(submission.choices) > self._max_live_choices:
            raise self._queue_full(f"the engine holds at most {self._max_live_choices} choices")
        now = self._clock()
        if submission.timeout is not None:
            until = now + submission.timeout
            deadline = until if deadline is None else min(deadline, until)
        live = LiveRequest(submission, stream, last_event_at=now)
        if submission.adapter is not None:
            submission.adapter.take(live)
        if self._tracer is not None:
            live.story = submission.story(now)
        first_key, *_ = itertools.islice(self._keys, len(submission.choices))
        requests = submission.requests(first_key, arrival=now, deadline=deadline, group=live)
        for request in requests:
            choice = Choice(live, request, num_output_tokens=request.num_resumed)
            live.choices[request.choice] = choice
            self._choices[request.key] = choice
        self._empty.clear()
        self._engine.send(Submit(requests))
        return live

    def refused(
        self, request: pb.GenerateRequest | pb.EmbedRequest, error: errors.RequestError
    ) -> None:
        """A request came to nothing: its check or `submit` raised this."""
        if self._tracer is not None:
            embeds = request.DESCRIPTOR is pb.EmbedRequest.DESCRIPTOR
            operation: Operation = "embeddings" if embeds else "text_completion"
            self._tracer.refused(operation, request.request_id, request.traceparent, error)

    def cancel(self, live: LiveRequest, choice: int | None = None) -> None:
        """Ends a request, or one of its choices, which then gets a finish event. What has ended is
        left alone."""
        if choice is None:
            self._end(live, None, "abort")
            return
        found = live.choices.get(choice)
        if found is not None:
            self._engine.send(Cancel((found.request.key,)))
            self._finish(found, FinishReason.CANCELLED, None, self._clock())

    async def flush_cache(self) -> int:
        """Forgets the prefix cache; returns the number of blocks."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        send = self._engine.send
        send(FlushCache(lambda count: loop.call_soon_threadsafe(done.set_result, count)))
        return await done

    def start_draining(self) -> None:
        """Refuses new requests from now on."""
        self._draining = True
        self.notify_watchers()

    async def drained(self) -> None:
        """Returns once no request is alive."""
        await self._empty.wait()

    def end_all(self) -> None:
        """Ends every request with UNAVAILABLE."""
        for live in {id(choice.live): choice.live for choice in self._choices.values()}.values():
            self._end(live, errors.draining(), "abort")

    def stop(self, timeout: float) -> bool:
        """Ends the engine's thread; False if it did not end within `timeout` seconds."""
        self._engine.send(Stop())
        return self._engine.join(timeout)

    def watch(self) -> asyncio.Event:
        """An event that is set whenever the load may have changed, until `unwatch`."""
        event = asyncio.Event()
        self._watchers.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        """Forgets an event of `watch`."""
        self._watchers.discard(event)

    def send_heartbeats(self, quiet_seconds: float) -> None:
        """Tells every client that has heard nothing for `quiet_seconds` that its request lives."""
        now = self._clock()
        for choice in self._choices.values():
            live = choice.live
            if now - live.last_event_at >= quiet_seconds and not live.stream.has_unsent:
                live.last_event_at = now
                live.stream.add(events.heartbeat())

    def count_sending(self, seconds: float) -> None:
        """Adds to the time that outputs took to become messages."""
        self._metrics.on_sent(seconds)

    def _deliver(self, report: Report) -> None:
        started = time.perf_counter()
        for submit, full in report.refused:
            choice = self._choices.get(submit.requests[0].key)
            if choice is not None:
                error = self._queue_full(str(full))
                self._forget(choice.live)
                self._tell_story(choice.live, report.at, error)
                choice.live.stream.end(error)
        for ended in report.ended_at_once:
            self._on_finished(ended, report.at)
        for key, stage in report.expired:
            if key in self._choices:
                live = self._choices[key].live
                self._end(live, errors.deadline_exceeded(stage), "timeout")
        for key in report.lost:
            self._fail_request(key, "the engine failed to compute this request")
        if report.outputs is not None:
            self._deliver_step(report)
        if report.kv_stored or report.kv_removed:
            self.kv_events.add(report.kv_stored, report.kv_removed)
        self.notify_watchers()
        self._metrics.on_sent(time.perf_counter() - started)

    def _deliver_step(self, report: Report) -> None:
        outputs = report.outputs
        if outputs is None:
            return
        self._metrics.on_step(
            report.num_step_tokens,
            report.step_seconds,
            len(outputs.tokens),
            len(outputs.preempted),
        )
        self._metrics.speculation.on_drafts(outputs.drafts)
        for admitted in outputs.admitted:
            self._on_admitted(admitted.key, admitted.cached_tokens, report.at)
        for choice in self._alive(outputs.preempted):
            choice.live.stream.add(events.preempted())
            if choice.live.story is not None:
                choice.live.story.preempted_at.append(report.at)
        for part in outputs.prompt_logprobs:
            for choice in self._alive((part.key,)):
                top_k = choice.request.sampling.prompt_logprobs or 0
                choice.live.stream.add_prompt_logprobs(part.first_position, part.entries, top_k)
        self._deliver_tokens(outputs.tokens, report.at)
        for item in outputs.embeddings:
            for choice in self._alive((item.key,)):
                choice.live.vectors[choice.request.choice] = item.vector
        for finished in outputs.finished:
            self._on_finished(finished, report.at)
        for failed in outputs.failed:
            self._fail_request(failed.key, failed.message)

    def _alive(self, keys: Iterable[int]) -> list[Choice]:
        return [self._choices[key] for key in keys if key in self._choices]

    def _on_admitted(self, key: int, cached_tokens: int, now: float) -> None:
        choice = self._choices.get(key)
        if choice is None:
            return
        self._metrics.on_admitted(choice.request.num_prompt_tokens, cached_tokens)
        live = choice.live
        live.last_event_at = now
        if not live.admitted:
            live.admitted = True
            live.cached_tokens = cached_tokens
            seed = live.submission.sampling.seed
            live.stream.add(events.admitted(self._instance_id, cached_tokens, seed))

    def _deliver_tokens(self, tokens: Iterable[NewToken], now: float) -> None:
        num_after: dict[float, int] = {}  # instant of a choice's last token: how many had it then
        for token in tokens:
            choice = self._choices.get(token.key)
            if choice is None:
                continue
            live, request, last = choice.live, choice.request, choice.last_token_at
            if last is None:
                self._metrics.on_first_token(now - request.arrival)
            else:
                num_after[last] = num_after.get(last, 0) + 1
            choice.last_token_at = live.last_event_at = now
            choice.num_output_tokens = token.position + 1
            live.stream.add_token(
                request.choice,
                token.position,
                token.token_id,
                token.logprobs,
                request.sampling.logprobs or 0,
            )
            if live.stream.overflowed:
                self._end(live, errors.client_too_slow(live.stream.num_unsent_tokens), "abort")
        for last, count in num_after.items():
            self._metrics.on_tokens(now - last, count)

    def _on_finished(self, finished: FinishedRequest, now: float) -> None:
        choice = self._choices.get(finished.key)
        if choice is not None:
            self._finish(choice, finished.reason, finished.stop_token_id, now)

    def _finish(
        self, choice: Choice, reason: FinishReason, stop_token_id: int | None, now: float
    ) -> None:
        """Ends one choice with a finish event, and with the last of them the request."""
        live, request = choice.live, choice.request
        label = _LABELS[reason]
        live.stream.add(
            events.finish(
                request,
                reason,
                stop_token_id,
                cached_tokens=live.cached_tokens,
                completion_tokens=choice.num_output_tokens,
                now=now,
            )
        )
        self._count_end(choice, label, now)
        self._remove(choice)
        if not live.choices:
            self._tell_story(live, now)
            live.stream.end()

    def _count_end(self, choice: Choice, label: str, now: float) -> None:
        self._metrics.on_finished(choice.request, choice.num_output_tokens, label, now)
        log_end(choice, label)
        if choice.live.story is not None:
            choice.live.story.choice_ended(choice.request, choice.num_output_tokens, label)

    def _tell_story(
        self, live: LiveRequest, now: float, error: errors.RequestError | None = None
    ) -> None:
        """Makes the spans of a request that has ended."""
        if self._tracer is not None and live.story is not None:
            live.story.num_cached_tokens = live.cached_tokens
            self._tracer.ended(live.story, now, error)

    def _fail_request(self, key: int, message: str) -> None:
        choice = self._choices.get(key)
        if choice is not None:
            theirs = message.startswith(UNSATISFIABLE)
            error = errors.RequestError(Code.INVALID_ARGUMENT if theirs else Code.INTERNAL, message)
            self._end(choice.live, error, "error")

    def _end(self, live: LiveRequest, error: errors.RequestError | None, label: str) -> None:
        """Ends all choices that are left, in the engine as well, and the stream with the error."""
        if live.choices:
            self._engine.send(Cancel(tuple(c.request.key for c in live.choices.values())))
            now = self._clock()
            for choice in live.choices.values():
                self._count_end(choice, label, now)
            self._forget(live)
            self._tell_story(live, now, error)
        live.stream.end(error)

    def _forget(self, live: LiveRequest) -> None:
        for choice in list(live.choices.values()):
            self._remove(choice)

    def _remove(self, choice: Choice) -> None:
        del self._choices[choice.request.key]
        choice.live.remove(choice.request.choice)
        if not self._choices:
            self._empty.set()

    def _queue_full(self, message: str) -> errors.RequestError:
        self._metrics.on_rejected("queue_full")
        load = self._engine.load
        seconds = load.step_seconds * max(1, load.num_waiting)  # a place a step, as a rough guess
        return errors.queue_full(message, min(max(seconds, 0.5), 30.0))

    def _fail(self) -> None:
        self.failed.set()
        self.end_all()
        self.notify_watchers()

    def notify_watchers(self) -> None:
        """Sets the events of `watch`."""
        for event in self._watchers:
            event.set()
