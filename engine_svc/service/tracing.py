"""A request's spans, made when it has ended, from the times that the engine keeps anyway.

    text_completion smollm2      SERVER, child of the router's attempt
    ├─ compile grammar           only where the answer has a form
    ├─ queue                     until a choice is scheduled
    ├─ prefill                   until it has its first token
    └─ decode                    until the last choice has ended

So a token and a step cost nothing, and what a request costs, some 50 µs, is spent beside the thread
that steps. Names and attributes are OpenTelemetry's conventions for generative AI where those have
any, see https://opentelemetry.io/docs/specs/semconv/gen-ai/; Octavo's own begin with "octavo.".
This module is loaded only where something is traced.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from google.rpc.code_pb2 import Code
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from engine_svc.service.request_story import RequestStory, valid_traceparent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.tracing import Tracing
    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from engine_svc.service.errors import RequestError
    from engine_svc.service.request_story import Operation

_PROVIDER = "octavo"
_MAX_NAME = 512  # characters
_OUTCOMES = {"abort": "cancel"}  # of an ending; all others are outcomes themselves
_GRAVEST = ("error", "timeout", "cancel", "length")  # outcomes of several choices, before "stop"
_FAULTS = ("error", "timeout")
# Refusals that whoever runs this should see; all others are the caller's own doing.
_REFUSED_BY_US = (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE, Code.INTERNAL, Code.DEADLINE_EXCEEDED)


class RequestTracer:
    """Makes spans; every method may be called from any thread."""

    def __init__(
        self,
        tracing: Tracing,
        *,
        model_name: str,
        instance_id: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is the engine's, in seconds."""
        self._tracing = tracing
        self._model_name = model_name
        self._instance_id = instance_id
        self._clock = clock

    def ended(self, story: RequestStory, now: float, error: RequestError | None = None) -> None:
        """A request has ended at `now`, with an error or each choice as its story says."""
        offset = time.time_ns() - int(self._clock() * 1e9)

        def instant(seconds: float) -> int:
            return offset + int(seconds * 1e9)

        span = self._start(story, instant(story.arrival - story.prepared_in))
        if not span.is_recording():
            span.end()
            return
        span.set_attributes(_attributes(story))
        for at in story.preempted_at:
            span.add_event("preempted", timestamp=instant(at))
        context = set_span_in_context(span, Context())
        for name, began, until in _phases(story, now):
            child = self._tracing.tracer.start_span(name, context, start_time=instant(began))
            if name == "queue" and story.waited_for is not None:
                child.set_attribute("octavo.queue.waited_for", story.waited_for)
            child.end(instant(until))
        _conclude(span, _outcome(story.endings), error)
        span.end(instant(now))

    def refused(
        self, operation: Operation, request_id: str, traceparent: str, error: RequestError
    ) -> None:
        """A request was refused before it was alive. What names it need not have been checked."""
        now = self._clock()
        story = RequestStory(
            operation, request_id[:_MAX_NAME], valid_traceparent(traceparent), arrival=now
        )
        self.ended(story, now, error)

    def _start(self, story: RequestStory, began: int) -> Span:
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": story.operation,
            "gen_ai.provider.name": _PROVIDER,
            "gen_ai.request.model": self._model_name,
            "gen_ai.response.model": self._model_name,
            "octavo.request_id": story.request_id,
            "octavo.attempt": story.attempt + 1,  # as the router counts them
            "octavo.engine.instance_id": self._instance_id,
        }
        return self._tracing.tracer.start_span(
            f"{story.operation} {self._model_name}",
            context=self._tracing.context_of(story.traceparent),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=began,
        )


def _attributes(story: RequestStory) -> Mapping[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"octavo.preemptions": len(story.preempted_at)}
    if story.request_id:
        attributes["gen_ai.response.id"] = story.request_id
    if story.endings:
        attributes["gen_ai.response.finish_reasons"] = story.endings
    if story.num_prompt_tokens:
        attributes["gen_ai.usage.input_tokens"] = story.num_prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = story.num_output_tokens
        attributes["gen_ai.usage.cache_read.input_tokens"] = story.num_cached_tokens
    if story.num_resumed:
        attributes["octavo.attempt.resumed_tokens"] = story.num_resumed
    if story.first_token_at is not None:
        attributes["octavo.time_to_first_token"] = story.first_token_at - story.arrival
    return attributes


def _phases(story: RequestStory, now: float) -> list[tuple[str, float, float]]:
    """Name, begin and end of each phase that the request came to."""
    arrival, scheduled, first = story.arrival, story.first_scheduled_at, story.first_token_at
    phases = []
    if story.prepared_in:
        phases.append(("compile grammar", arrival - story.prepared_in, arrival))
    if scheduled is None:
        return [*phases, ("queue", arrival, now)] if now > arrival else phases
    phases.append(("queue", arrival, scheduled))
    if first is None:
        return [*phases, ("prefill", scheduled, now)]
    return [*phases, ("prefill", scheduled, first), ("decode", first, now)]


def _outcome(endings: list[str]) -> str:
    outcomes = {_OUTCOMES.get(ending, ending) for ending in endings}
    return next((each for each in _GRAVEST if each in outcomes), "stop")


def _conclude(span: Span, outcome: str, error: RequestError | None) -> None:
    """Says how it ended, and whether that is a fault."""
    if error is None:
        span.set_attribute("octavo.outcome", outcome)
        if outcome in _FAULTS:
            span.set_attribute("error.type", outcome)
            span.set_status(Status(StatusCode.ERROR))
        return
    code = error.status.code
    kind = Code.Name(code).lower()
    span.set_attribute("octavo.outcome", outcome if outcome in (*_FAULTS, "cancel") else "refused")
    span.set_attribute("error.type", kind)
    if code in _REFUSED_BY_US:
        # The messages of a caller's own mistakes may quote the request: those stay here.
        span.set_status(Status(StatusCode.ERROR, error.status.message))
