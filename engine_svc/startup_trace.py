"""An engine's start as one trace: each phase that its log shows is a span."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.tracing import Tracing

    from engine_svc.config import Settings
    from engine_svc.progress import StartupPrinter


@dataclass(frozen=True, slots=True)
class Start:
    """A start that began at `began`, in seconds since 1970; `tracing` is None where it is off."""

    tracing: Tracing | None
    settings: Settings
    printer: StartupPrinter
    began: float

    def is_over(self, error: str | None = None) -> None:
        """Makes the trace: the engine is ready, or will not be because of `error`."""
        if self.tracing is None:
            return
        # Only here: it takes its time, and off costs nothing.
        from opentelemetry.context import Context
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        tracer = self.tracing.tracer
        span = tracer.start_span(
            "engine start",
            context=Context(),
            start_time=_nanoseconds(self.began),
            attributes={
                "octavo.model": self.settings.model.path.name,
                "octavo.engine.instance_id": self.settings.service.instance_id,
                "octavo.outcome": "ok" if error is None else "error",
            },
        )
        context = set_span_in_context(span, Context())
        for phase in self.printer.phases:
            child = tracer.start_span(phase.name, context, start_time=_nanoseconds(phase.began))
            child.end(_nanoseconds(phase.began + phase.seconds))
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(time.time_ns())


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
