"""Traces of a service, by OTLP. Where no endpoint is set, nothing of OpenTelemetry is loaded.

    --otlp-traces-endpoint, OTEL_* ──► start_tracing() ──► Tracing │ None (off)
                                                              │ tracer.start_span(…)
                                       BatchSpanProcessor ◄───┘     its own thread
                                              │ OTLP, gRPC or HTTP
                                          a collector

Who makes spans asks `if tracing is not None` and nothing else: there is no global provider and no
current span, so every parent is given by hand. What the standard OTEL_ variables say of samplers,
batches, headers, certificates, time limits and resources is read by OpenTelemetry's own parts, see
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

    from octavo.flag_lists import Flags

Signal: TypeAlias = Literal["traces", "metrics"]

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0  # for the last spans, within what a pod gets to end
_QUIET_SECONDS = 60.0

TRACING_FLAGS: Flags = (
    (
        "--otlp-traces-endpoint",
        {
            "metavar": "URL",
            "help": "Where traces are sent by OTLP, for example http://collector:4317. Without it "
            "and OTEL_EXPORTER_OTLP_ENDPOINT nothing is traced. See docs/tracing.md.",
        },
    ),
)


def start_tracing(service_name: str, *, endpoint: str | None, instance_id: str) -> Tracing | None:
    """The traces of this process, or None where neither `endpoint` nor an OTEL_ variable asks.

    Raises ValueError, with a message for people, for an endpoint or protocol that cannot be used.
    """
    if not wanted("traces", endpoint, os.environ):
        return None
    exporter = exporter_of("traces", endpoint, os.environ)
    return Tracing(exporter, resource_of(service_name, instance_id))


class Tracing:
    """A tracer and what sends its spans; every method may be called from any thread."""

    def __init__(self, exporter: SpanExporter, resource: Resource) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._troubles = Troubles()
        self._exporter = exporter
        # Ended by close() and not by an exit handler, which would wait for a dead collector. The
        # sampler is that of OTEL_TRACES_SAMPLER: by default what a request's parent has chosen.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._propagator = TraceContextTextMapPropagator()
        self.tracer: Tracer = self._provider.get_tracer("octavo", metadata.version("octavo"))

    def context_of(self, traceparent: str) -> Context:
        """What makes a span a child of the one that `traceparent` names (W3C Trace Context).

        "" and what is no traceparent give an empty context: the span begins a trace of its own.
        """
        from opentelemetry.context import Context

        return self._propagator.extract({"traceparent": traceparent}, context=Context())

    def traceparent_of(self, span: Span) -> str:
        """A span as the traceparent of what it calls."""
        context = span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Sends what is left, for so long at most. Blocks; spans that end later are dropped."""
        close_within(seconds, self._shut_down, self._exporter.shutdown)

    def _shut_down(self) -> None:
        self._provider.shutdown()
        self._troubles.close()


def wanted(signal: Signal, endpoint: str | None, environment: Mapping[str, str]) -> bool:
    """Whether a signal is to be sent: somebody said where, and nobody switched it off."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower() == "none":
        return False
    own = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return bool(endpoint or own or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"))


def exporter_of(signal: Signal, endpoint: str | None, environment: Mapping[str, str]) -> Any:
    """OpenTelemetry's exporter of a signal; `endpoint` wins over the OTEL_ variables.

    Raises ValueError for an endpoint that is no URL, and for a protocol that there is not.
    """
    if endpoint and (
        urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint)[1]
    ):
        raise ValueError(
            f"the OTLP endpoint must be a URL such as http://collector:4317, not {endpoint!r}"
        )
    given = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    protocol = (given or "grpc").strip().lower()
    if protocol == "grpc":
        return _grpc_exporter(signal, endpoint)
    if protocol == "http/protobuf":
        return _http_exporter(signal, endpoint)
    raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL must be grpc or http/protobuf, not {given!r}")


def _grpc_exporter(signal: Signal, endpoint: str | None) -> Any:
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(endpoint=endpoint)


def _http_exporter(signal: Signal, endpoint: str | None) -> Any:
    if endpoint:
        base = endpoint.rstrip("/").removesuffix("/v1/traces")
        if base != endpoint.rstrip("/") or not urlsplit(base).path:
            endpoint = f"{base}/v1/{signal}"
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(endpoint=endpoint)


def resource_of(service_name: str, instance_id: str) -> Resource:
    """What sends; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over what is given."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": service_name,
        "service.version": metadata.version("octavo"),
        "service.instance.id": instance_id,
    }
    return Resource.create().merge(Resource(ours)).merge(OTELResourceDetector().detect())


def close_within(seconds: float, close: Callable[[], None], give_up: Callable[[], None]) -> None:
    """Runs `close` for so long at most; after that `give_up` runs beside it, to make it end."""
    closing = threading.Thread(target=close, name="otlp-close", daemon=True)
    closing.start()
    closing.join(seconds)
    if not closing.is_alive():
        return
    log.warning("what could not be sent by OTLP within %.1f s is dropped", seconds)
    threading.Thread(target=give_up, name="otlp-give-up", daemon=True).start()


class Troubles(logging.Handler):
    """Passes on what OpenTelemetry logs, a line a minute: a collector that is down is no storm."""

    _root = logging.getLogger("opentelemetry")

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._next = 0.0  # time.monotonic()
        self._held_back = 0
        self._root.addHandler(self)
        self._root.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        now = time.monotonic()
        if now < self._next:
            self._held_back += 1
            return
        self._next = now + _QUIET_SECONDS
        log.warning("%s (%d such lines held back)", record.getMessage(), self._held_back)
        self._held_back = 0

    def close(self) -> None:
        """See logging.Handler."""
        self._root.removeHandler(self)
        self._root.propagate = not self._root.handlers
        super().close()
