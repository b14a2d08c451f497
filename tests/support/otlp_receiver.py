"""Where OTLP goes to in tests: a collector that keeps what it is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came; ids are in hex, `links` are ids of spans."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[str, ...]
    status: int  # 0 unset, 2 error
    message: str
    attributes: dict[str, Any]
    seconds: float


@dataclass
class OtlpReceiver:
    """What came so far; `endpoint` is a URL."""

    endpoint: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)  # the last of each name
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, enough: Callable[[], bool], seconds: float = 60.0) -> bool:
        """Whether it came to hold within so many seconds."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not enough():
                if not self.changed.wait(deadline - time.monotonic()):
                    return enough()
        return True

    def take_spans(self, request: trace_pb.ExportTraceServiceRequest) -> None:
        """Keeps what a call brought."""
        with self.changed:
            for resource in request.resource_spans:
                service = _plain(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    self.spans += [_received(service, span) for span in scope.spans]
            self.changed.notify_all()

    def take_metrics(self, request: metrics_pb.ExportMetricsServiceRequest) -> None:
        """Keeps what a call brought."""
        with self.changed:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}
            self.changed.notify_all()

    def named(self, name: str) -> list[ReceivedSpan]:
        """Spans of a name, in the order in which they ended."""
        return [span for span in self.spans if span.name == name]


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(self, request, _context):  # noqa: N802 -- OTLP's name
        self._receiver.take_spans(request)
        return trace_pb.ExportTraceServiceResponse()


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(self, request, _context):  # noqa: N802 -- OTLP's name
        self._receiver.take_metrics(request)
        return metrics_pb.ExportMetricsServiceResponse()


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on a free port."""
    receiver = OtlpReceiver()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_grpc.add_TraceServiceServicer_to_server(_Traces(receiver), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(_Metrics(receiver), server)
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()


@contextmanager
def otlp_http_receiver() -> Iterator[OtlpReceiver]:
    """The same over HTTP: what is posted to /v1/traces and /v1/metrics; all else is a 404."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            protobuf = self.headers["content-type"] == "application/x-protobuf"
            match self.path if protobuf else None:
                case "/v1/traces":
                    receiver.take_spans(trace_pb.ExportTraceServiceRequest.FromString(body))
                case "/v1/metrics":
                    receiver.take_metrics(metrics_pb.ExportMetricsServiceRequest.FromString(body))
                case _:
                    self.send_error(404)
                    return
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing: what came is what tests look at."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.endpoint = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            serving.join()


def _received(service: str, span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        service=service,
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in span.links),
        status=span.status.code,
        message=span.status.message,
        attributes=_plain(span.attributes),
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
