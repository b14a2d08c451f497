"""The spans of one call, and only of its phases: nothing here runs for each token.

    chat smollm2                    SERVER, child of the client's span
    ├─ tokenise                     template and tokeniser
    ├─ route                        choosing an engine
    ├─ attempt          ✗ lost      CLIENT; the engine's own spans are its children
    ├─ route                │
    └─ attempt  ───link─────┘       goes on with what came so far

Names and attributes are OpenTelemetry's conventions for generative AI where those have any, see
https://opentelemetry.io/docs/specs/semconv/gen-ai/; what is Octavo's own begins with "octavo.".
This module is loaded only where something is traced.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, set_span_in_context

from router_svc.errors import ApiError, ErrorKind
from router_svc.generation_types import GenerationRequest
from router_svc.tracing.outcomes import OK, is_fault, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from octavo.tracing import Tracing
    from opentelemetry.trace import Span, SpanContext
    from opentelemetry.util.types import Attributes, AttributeValue

    from router_svc.call_context import CallContext
    from router_svc.engines.encoder_types import EncoderRequest
    from router_svc.engines.info import EngineInfo
    from router_svc.fleet.policies import Candidate
    from router_svc.tracing.call import Call

PROVIDER = "octavo"

_MAX_NAME = 256  # characters of what a client sends, which may be anything


class CallSpans:
    """The span of a call, and what makes its children."""

    def __init__(self, tracing: Tracing, operation: str, model: str, context: CallContext) -> None:
        """Begins the span; `model` is what the client asked for, or ""."""
        self._tracing = tracing
        self._operation = operation
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": PROVIDER,
            "octavo.request_id": context.request_id,
        }
        if model:
            attributes["gen_ai.request.model"] = model[:_MAX_NAME]
        self._span = tracing.tracer.start_span(
            operation,
            context=tracing.context_of(context.traceparent),
            kind=SpanKind.SERVER,
            attributes=attributes,
        )
        self._context = set_span_in_context(self._span, Context())
        # By request: a call with several prompts is several.
        self._num_attempts: Counter[str] = Counter()
        self._lost: dict[str, SpanContext] = {}  # the last attempt, if it failed
        self.traceparent = tracing.traceparent_of(self._span)

    @contextmanager
    def phase(self, name: str) -> Iterator[Span]:
        """A child for what runs within."""
        span = self._start(name)
        error: BaseException | None = None
        try:
            yield span
        except BaseException as raised:
            error = raised
            raise
        finally:
            _end(span, error)

    def routed(
        self,
        began: int,
        policy: str,
        chosen: Candidate | None = None,
        num_candidates: int = 0,
        *,
        error: ApiError | None = None,
    ) -> None:
        """A child for the choice of an engine, which began at `began` (time.time_ns()) and ends."""
        span = self._start("route", {"octavo.route.policy": policy}, began=began)
        span.set_attribute("octavo.route.num_candidates", num_candidates)
        if chosen is not None:
            span.set_attribute("octavo.engine", chosen.engine)
            span.set_attribute("octavo.route.cached_tokens", chosen.cached_tokens)
        _end(span, error)

    def attempt(
        self, request: GenerationRequest | EncoderRequest, engine: str, info: EngineInfo | None
    ) -> AttemptSpan:
        """A child for an attempt at an engine, linked to the one whose loss it makes up for."""
        number = self._num_attempts[request.request_id] + 1
        self._num_attempts[request.request_id] = number
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": self._operation,
            "gen_ai.provider.name": PROVIDER,
            "octavo.request_id": request.request_id,
            "octavo.attempt": number,
            "octavo.engine": engine,
            **_address_of(engine),
        }
        if info is not None:
            attributes["octavo.engine.instance_id"] = info.instance_id
        if isinstance(request, GenerationRequest) and request.resume:
            kept = sum(len(choice.token_ids) for choice in request.resume)
            attributes["octavo.attempt.resumed_tokens"] = kept
        lost = self._lost.pop(request.request_id, None)
        span = self._start(
            "attempt",
            attributes,
            kind=SpanKind.CLIENT,
            links=() if lost is None else (Link(lost, {"octavo.link": "takes over from"}),),
        )
        return AttemptSpan(self, request.request_id, span, self._tracing.traceparent_of(span))

    def lose(self, request_id: str, attempt: SpanContext) -> None:
        """Takes note of an attempt that another may make up for."""
        self._lost[request_id] = attempt

    def end(self, call: Call, error: BaseException | None) -> None:
        """Ends the call's span with all that is known of the call."""
        span = self._span
        if not span.is_recording():
            return
        if call.model:
            span.update_name(f"{self._operation} {call.model}")
            span.set_attribute("gen_ai.response.model", call.model)
        if call.response_id:
            span.set_attribute("gen_ai.response.id", call.response_id)
        if call.finish_reasons:
            span.set_attribute("gen_ai.response.finish_reasons", call.finish_reasons)
        if call.input_tokens:
            span.set_attribute("gen_ai.usage.input_tokens", call.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", call.output_tokens)
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", call.cached_tokens)
        if (waited := call.time_to_first_token) is not None:
            span.set_attribute("octavo.time_to_first_token", waited)
        _end(span, error)

    def _start(
        self,
        name: str,
        attributes: Attributes = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: tuple[Link, ...] = (),
        began: int | None = None,
    ) -> Span:
        return self._tracing.tracer.start_span(
            name,
            context=self._context,
            kind=kind,
            attributes=attributes,
            links=links,
            start_time=began,
        )


class AttemptSpan:
    """The span of one attempt; `traceparent` is what its engine is told."""

    def __init__(self, call: CallSpans, request_id: str, span: Span, traceparent: str) -> None:
        self._call = call
        self._request_id = request_id
        self._span = span
        self.traceparent = traceparent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.ended(error)

    def ended(self, error: BaseException | None) -> None:
        """Ends it; None is well."""
        if isinstance(error, ApiError) and error.kind is not ErrorKind.CANCELLED:
            self._call.lose(self._request_id, self._span.get_span_context())
        _end(self._span, error)


def _end(span: Span, error: BaseException | None) -> None:
    outcome = outcome_of(error)
    span.set_attribute("octavo.outcome", outcome)
    if outcome != OK:
        span.set_attribute("error.type", outcome)
    if is_fault(error):
        # The messages of a client's own mistakes may quote the request: those stay here.
        reason = error.message if isinstance(error, ApiError) else type(error).__name__
        span.set_status(Status(StatusCode.ERROR, reason))
    span.end()


def _address_of(engine: str) -> dict[str, AttributeValue]:
    """An engine's target as the attributes of a server."""
    if engine.startswith("unix:"):
        return {"server.address": engine.removeprefix("unix:"), "network.transport": "unix"}
    host, _, port = engine.rpartition(":")
    if not host or not port.isdigit():
        return {"server.address": engine}
    return {"server.address": host.strip("[]"), "server.port": int(port)}
