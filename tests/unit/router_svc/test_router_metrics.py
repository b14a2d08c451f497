"""The router's metrics and its engines' are one exposition."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from router_svc.errors import ApiError, ErrorKind
from router_svc.metrics import RouterMetrics, merged_exposition, only_named

ENGINE = b"""# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="%d",model_name="m"} 2.0
# HELP vllm:generation_tokens_total Tokens.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="%d",model_name="m"} 7.0
"""


def _text(metrics: RouterMetrics, *engines: bytes) -> str:
    return merged_exposition(metrics.registry.collect(), engines).decode()


def test_each_family_is_declared_once_for_all_engines() -> None:
    text = _text(RouterMetrics(), ENGINE % (0, 0), ENGINE % (1, 1))

    assert text.count("# TYPE vllm:num_requests_running gauge") == 1
    assert 'vllm:generation_tokens_total{engine="0",model_name="m"} 7.0' in text
    assert 'vllm:generation_tokens_total{engine="1",model_name="m"} 7.0' in text


def test_a_family_of_router_and_engines_is_declared_once_with_its_times_of_creation() -> None:
    engine = CollectorRegistry()
    Counter("octavo_router_retried", "Text.", ["engine"], registry=engine).labels("0").inc()
    own = CollectorRegistry()
    Counter("octavo_router_retried", "Text.", registry=own).inc()

    text = merged_exposition(own.collect(), [generate_latest(engine)]).decode()

    assert text.count("# TYPE octavo_router_retried_total counter") == 1
    assert text.count("# TYPE octavo_router_retried_created gauge") == 1
    assert 'octavo_router_retried_total{engine="0"} 1.0' in text
    assert "octavo_router_retried_total 1.0" in text


def test_who_asks_for_some_names_gets_these_as_in_the_whole() -> None:
    engine = CollectorRegistry()
    Counter("tokens", "Text.", ["engine"], registry=engine).labels("0").inc()
    Counter("tokens_cached", "Text.", ["engine"], registry=engine).labels("0").inc()
    Histogram("first", "Text.", ["engine"], registry=engine).labels("0").observe(1)
    own = CollectorRegistry()
    Gauge("ready", "Text.", registry=own).set(1)
    Gauge("busy", "Text.", registry=own).set(1)
    whole = merged_exposition(own.collect(), [generate_latest(engine)]).decode().splitlines()
    names = {"tokens_total", "first_bucket", "ready", "none"}

    some = merged_exposition(*only_named(own.collect(), [generate_latest(engine)], names)).decode()

    wanted = ("tokens_total", "first_bucket", "ready")
    described = tuple(
        f"# {word} {each} " for word in ("HELP", "TYPE") for each in (*wanted, "first")
    )
    assert some.splitlines() == [line for line in whole if line.startswith((*wanted, *described))]
    assert "first_bucket" in some


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ApiError(ErrorKind.NOT_FOUND, "no"), "not_found"),
        (asyncio.CancelledError(), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (KeyError("x"), "internal"),
    ],
)
def test_a_call_is_counted_by_how_it_ended(error: BaseException, outcome: str) -> None:
    metrics = RouterMetrics()

    with pytest.raises(type(error)), metrics.call("Tokenize"):
        raise error

    text = _text(metrics)
    assert f'octavo_router_requests_total{{outcome="{outcome}",rpc="Tokenize"}} 1.0' in text
    assert 'octavo_router_requests_in_flight{rpc="Tokenize"} 0.0' in text
