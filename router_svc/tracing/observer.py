"""Watches the calls that make something: a span for each, and the gen_ai metrics."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from router_svc.tracing.call import Call
from router_svc.tracing.gen_ai import GenAiMetrics
from router_svc.tracing.outcomes import outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.tracing import Tracing
    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry

    from router_svc.call_context import CallContext


class Observer:
    """`tracing` and `meter` are None where nothing is sent by OTLP."""

    def __init__(
        self,
        registry: CollectorRegistry,
        tracing: Tracing | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._tracing = tracing
        self._metrics = GenAiMetrics(registry, meter)

    @contextmanager
    def watch(self, operation: str, model: str, context: CallContext) -> Iterator[CallContext]:
        """The context that the call goes on with; `model` is what the client asked for, or ""."""
        call = Call(operation)
        context = replace(context, call=call)
        if self._tracing is not None:
            # Only here: it loads OpenTelemetry.
            from router_svc.tracing.spans import CallSpans

            call.spans = CallSpans(self._tracing, operation, model, context)
            context = replace(context, traceparent=call.spans.traceparent)
        error: BaseException | None = None
        try:
            yield context
        except BaseException as raised:
            error = raised
            raise
        finally:
            seconds = time.monotonic() - call.started
            self._metrics.observe(call, model, seconds, outcome_of(error))
            if call.spans is not None:
                call.spans.end(call, error)
