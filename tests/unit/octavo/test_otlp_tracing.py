"""When a process is traced, whose child a span is, and what a collector that is down costs."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from octavo.tracing import Tracing, resource_of, start_tracing
from opentelemetry.trace import get_current_span

from router_svc.tracing.telemetry import Telemetry
from tests.support.kept_spans import CALLER, KeptSpans
from tests.support.otlp_receiver import otlp_http_receiver

SOMEWHERE = "http://127.0.0.1:1"


def start(endpoint: str | None = None) -> Tracing | None:
    return start_tracing("octavo-test", endpoint=endpoint, instance_id="one")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "_TRACES", "_METRICS"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP{name}_ENDPOINT", raising=False)


def test_off_is_the_default_and_loads_nothing_of_opentelemetry() -> None:
    program = (
        "import sys, router_svc.assembly\n"
        "from router_svc.tracing.telemetry import Telemetry\n"
        "assert Telemetry.start(None) == Telemetry()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
def test_a_standard_variable_switches_it_on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, SOMEWHERE)

    tracing = start()

    assert tracing is not None
    tracing.close(0.1)


@pytest.mark.parametrize(
    ("name", "text"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")]
)
def test_a_standard_variable_switches_it_off(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)

    assert start(SOMEWHERE) is None


@pytest.mark.parametrize("endpoint", ["collector:4317", "ftp://collector", "http://"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="must be a URL such as"):
        start(endpoint)


def test_a_protocol_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")

    with pytest.raises(ValueError, match="must be grpc or http/protobuf"):
        start(SOMEWHERE)


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
async def test_spans_and_metrics_go_over_http_as_well(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    with otlp_http_receiver() as receiver:
        telemetry = Telemetry.start(receiver.endpoint + path)
        assert telemetry.tracing is not None
        assert telemetry.meter is not None

        telemetry.tracing.tracer.start_span("call").end()
        telemetry.meter.create_counter("calls").add(3)
        await telemetry.close()

    (span,) = receiver.named("call")
    assert span.service == "octavo-router"
    (point,) = receiver.metrics["calls"].sum.data_points
    assert point.as_int == 3


def test_a_span_is_the_child_of_the_one_that_the_traceparent_names() -> None:
    kept = KeptSpans()
    tracing = kept.tracing

    span = tracing.tracer.start_span("phase", context=tracing.context_of(CALLER))
    below = tracing.tracer.start_span(
        "below", context=tracing.context_of(tracing.traceparent_of(span))
    )
    below.end()
    span.end()

    spans = kept.by_name()
    _, trace, parent, _ = CALLER.split("-")
    assert f"{spans['phase'].context.trace_id:032x}" == trace
    assert f"{spans['phase'].parent.span_id:016x}" == parent
    assert spans["below"].parent.span_id == spans["phase"].context.span_id
    assert spans["below"].context.trace_id == spans["phase"].context.trace_id


@pytest.mark.parametrize("traceparent", ["", "junk", f"00-{'0' * 32}-{'0' * 16}-01"])
def test_without_a_valid_traceparent_a_trace_begins(traceparent: str) -> None:
    kept = KeptSpans()

    kept.tracing.tracer.start_span("call", context=kept.tracing.context_of(traceparent)).end()

    assert kept.by_name()["call"].parent is None


def test_who_was_not_sampled_by_the_caller_is_not_sampled_here() -> None:
    kept = KeptSpans()
    tracing = kept.tracing
    unsampled = CALLER[:-1] + "0"

    span = tracing.tracer.start_span("call", context=tracing.context_of(unsampled))
    span.end()

    assert tracing.traceparent_of(span).endswith("-00")  # what is called hears of it
    assert kept.all() == []


def test_there_is_no_current_span() -> None:
    kept = KeptSpans()

    span = kept.tracing.tracer.start_span("call")

    assert not get_current_span().get_span_context().is_valid
    span.end()
    kept.all()


def test_a_collector_that_is_down_costs_a_line_and_no_exception(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    tracing = start(SOMEWHERE)
    assert tracing is not None
    others = logging.getLogger("opentelemetry.sdk")

    tracing.tracer.start_span("call").end()
    for _ in range(20):
        others.warning("something is amiss")
    tracing.close(0.2)

    lines = [record for record in caplog.records if record.name == "octavo.tracing"]
    assert 1 <= len(lines) <= 2  # the trouble, and that what is left was dropped
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


def test_service_variables_win_over_what_the_process_calls_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod")

    attributes = resource_of("octavo-router", "one").attributes

    assert attributes["service.name"] == "chat"
    assert attributes["deployment.environment.name"] == "prod"
    assert attributes["service.instance.id"] == "one"
