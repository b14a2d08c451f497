"""The spans of a call: whose children they are, how they end, and what they keep to themselves."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from router_svc.call_context import CallContext
from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.fleet.policies import Candidate
from router_svc.generation_types import GenerationRequest, ResumedChoice, Sampling
from router_svc.tracing.observer import Observer
from router_svc.tracing.spans import CallSpans
from tests.support.kept_spans import CALLER, KeptSpans

LOST = ApiError(ErrorKind.UNAVAILABLE, "the engine was lost")


@pytest.fixture
def kept() -> KeptSpans:
    return KeptSpans()


@pytest.fixture
def observer(kept: KeptSpans) -> Observer:
    return Observer(CollectorRegistry(), kept.tracing)


def spans_of(context: CallContext) -> CallSpans:
    assert context.call.spans is not None
    return context.call.spans


def request(name: str = "me", *resumed: int) -> GenerationRequest:
    resume = (ResumedChoice(0, resumed, finished=False),) if resumed else ()
    return GenerationRequest(name, (1, 2, 3), Sampling(), resume=resume)


def test_a_call_is_the_child_of_its_clients_span(kept: KeptSpans, observer: Observer) -> None:
    with observer.watch("chat", "asked-for", CallContext("me", traceparent=CALLER)) as context:
        call = context.call
        call.model, call.response_id, call.finish_reasons = "served", "chatcmpl-me", ["stop"]
        call.input_tokens, call.output_tokens, call.cached_tokens = 9, 4, 8

    (span,) = kept.all()
    assert (span.name, span.kind) == ("chat served", SpanKind.SERVER)
    assert f"{span.parent.span_id:016x}" == CALLER.split("-")[2]
    assert context.traceparent.split("-")[2] == f"{span.context.span_id:016x}"
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "octavo",
        "gen_ai.request.model": "asked-for",
        "gen_ai.response.model": "served",
        "gen_ai.response.id": "chatcmpl-me",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "octavo.request_id": "me",
        "octavo.outcome": "ok",
    }


def test_an_attempt_links_to_the_one_whose_loss_it_makes_up_for(
    kept: KeptSpans, observer: Observer
) -> None:
    with observer.watch("chat", "", CallContext("me")) as context:
        spans = spans_of(context)
        first = spans.attempt(request(), "10.0.0.1:50061", None)
        first.ended(LOST)
        second = spans.attempt(request("me", 7, 8), "unix:/run/e.sock", None)
        second.ended(None)

    lost, took_over, call = kept.all()
    assert lost.parent == took_over.parent == call.context
    assert (lost.status.status_code, lost.status.description) == (
        StatusCode.ERROR,
        "the engine was lost",
    )
    assert [link.context for link in took_over.links] == [lost.context]
    assert (lost.attributes["octavo.attempt"], took_over.attributes["octavo.attempt"]) == (1, 2)
    assert took_over.attributes["octavo.attempt.resumed_tokens"] == 2
    assert (lost.attributes["server.address"], lost.attributes["server.port"]) == (
        "10.0.0.1",
        50061,
    )
    assert took_over.attributes["server.address"] == "/run/e.sock"
    assert call.status.status_code is StatusCode.UNSET


def test_attempts_of_different_prompts_of_a_call_have_nothing_to_do_with_each_other(
    kept: KeptSpans, observer: Observer
) -> None:
    with observer.watch("text_completion", "", CallContext("me")) as context:
        spans = spans_of(context)
        spans.attempt(request("me-0"), "e0:1", None).ended(LOST)
        spans.attempt(request("me-1"), "e1:1", None).ended(None)

    other = kept.all()[1]
    assert other.links == ()
    assert other.attributes["octavo.attempt"] == 1


def test_the_choice_of_an_engine_is_a_phase(kept: KeptSpans, observer: Observer) -> None:
    chosen = Candidate("e0:1", 0, 0, cached_tokens=48, kv_usage=0.0, ready_seconds=99.0)
    with observer.watch("chat", "", CallContext("me")) as context:
        spans_of(context).routed(1_000, "prefix_aware", chosen, 2)

    route = kept.all()[0]
    assert (route.name, route.start_time) == ("route", 1_000)
    assert route.attributes["octavo.route.policy"] == "prefix_aware"
    assert route.attributes["octavo.route.cached_tokens"] == 48
    assert route.attributes["octavo.route.num_candidates"] == 2
    assert route.attributes["octavo.engine"] == "e0:1"


def failed(kept: KeptSpans, observer: Observer, error: BaseException) -> ReadableSpan:
    """The span of a call that ends so."""
    with (
        pytest.raises(type(error)),
        observer.watch("chat", "", CallContext("me")) as context,
        context.call.phase("tokenise"),
    ):
        raise error
    phase, call = kept.all()
    assert phase.attributes["error.type"] == call.attributes["error.type"]
    return call


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit()])
def test_a_client_that_leaves_is_an_outcome_and_no_error(
    kept: KeptSpans, observer: Observer, error: BaseException
) -> None:
    span = failed(kept, observer, error)

    assert span.attributes["octavo.outcome"] == "cancelled"
    assert span.status.status_code is StatusCode.UNSET


def test_a_clients_mistake_is_named_and_not_quoted(kept: KeptSpans, observer: Observer) -> None:
    span = failed(kept, observer, invalid("messages", "a secret that the client wrote"))

    assert span.attributes["error.type"] == "invalid_request"
    assert span.status.status_code is StatusCode.UNSET
    assert "secret" not in span.to_json()


def test_a_bug_is_an_error_without_its_words(kept: KeptSpans, observer: Observer) -> None:
    span = failed(kept, observer, KeyError("a secret that the client wrote"))

    assert span.attributes["error.type"] == "internal"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "KeyError")
    assert "secret" not in span.to_json()


def test_a_call_that_is_not_sampled_goes_through_all_the_same(
    kept: KeptSpans, observer: Observer
) -> None:
    unsampled = CALLER[:-1] + "0"
    with observer.watch("chat", "", CallContext("me", traceparent=unsampled)) as context:
        with context.call.phase("tokenise"):
            pass
        attempt = spans_of(context).attempt(request(), "e0:1", None)
        attempt.ended(LOST)

    assert attempt.traceparent.endswith("-00")
    assert kept.all() == []
