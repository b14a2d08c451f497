"""Traces that stay in this process, for tests that read them."""

from __future__ import annotations

from octavo.tracing import Tracing
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class KeptSpans:
    """`tracing` for whoever makes spans; `all` ends it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracing = Tracing(self._exporter, Resource({}))

    def all(self) -> list[ReadableSpan]:
        """Every span that was made, in the order of their ends."""
        self.tracing.close()
        return list(self._exporter.get_finished_spans())

    def by_name(self) -> dict[str, ReadableSpan]:
        """The same where no name is there twice."""
        spans = self.all()
        assert len({span.name for span in spans}) == len(spans)
        return {span.name: span for span in spans}


def seconds(span: ReadableSpan) -> float:
    """How long it took."""
    return (span.end_time - span.start_time) / 1e9
