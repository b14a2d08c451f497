"""The gen_ai.server histograms: what counts, and under which names."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from router_svc.call_context import CallContext
from router_svc.errors import ApiError, ErrorKind
from router_svc.tracing.call import Call
from router_svc.tracing.observer import Observer

DURATION = "gen_ai_server_request_duration_seconds"
FIRST = "gen_ai_server_time_to_first_token_seconds"
NEXT = "gen_ai_server_time_per_output_token_seconds"


def counts(registry: CollectorRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """Observations by metric and by the values of its labels, in the labels' order of names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name.endswith("_count"):
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(family.name, {})[labels] = sample.value
    return found


def test_an_answer_counts_in_all_three() -> None:
    registry = CollectorRegistry()
    with Observer(registry).watch("chat", "alias", CallContext("me")) as context:
        context.call.model, context.call.output_tokens = "served", 3
        context.call.generated(context.call.started + 0.1, context.call.started + 0.2)

    labels = ("", "chat", "octavo", "alias", "served")
    assert counts(registry) == {name: {labels: 1.0} for name in (DURATION, FIRST, NEXT)}


def test_a_failure_counts_by_its_kind_and_only_in_the_duration() -> None:
    registry = CollectorRegistry()

    def fail_after_a_token(call: Call) -> None:
        call.generated(call.started + 1, call.started + 2)
        raise ApiError(ErrorKind.UNAVAILABLE)

    observer = Observer(registry)
    with pytest.raises(ApiError), observer.watch("chat", "", CallContext("me")) as context:
        fail_after_a_token(context.call)

    assert counts(registry) == {DURATION: {("unavailable", "chat", "octavo", "", ""): 1.0}}


def test_a_model_that_nobody_serves_gets_no_series() -> None:
    registry = CollectorRegistry()
    observer = Observer(registry)
    for name in ("made-up-1", "made-up-2"):
        with pytest.raises(ApiError), observer.watch("chat", name, CallContext("me")):
            raise ApiError(ErrorKind.NOT_FOUND)

    assert len(counts(registry)[DURATION]) == 1


def test_times_are_over_all_prompts_of_a_call() -> None:
    call = Call("text_completion", started=10.0)
    call.generated(12.0, 20.0)
    call.generated(11.0, 15.0)
    call.generated(0.0, 0.0)  # a prompt that got no token
    call.output_tokens, call.finish_reasons = 20, ["stop", "length"]

    assert call.time_to_first_token == 1.0
    assert call.time_per_output_token == 1.0  # 9 s for the 9 tokens after a choice's first


def test_one_token_has_no_time_between_tokens() -> None:
    call = Call("chat", started=10.0, output_tokens=1, finish_reasons=["stop"])
    call.generated(11.0, 11.0)

    assert call.time_per_output_token is None
