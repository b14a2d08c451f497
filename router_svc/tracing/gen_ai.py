"""The gen_ai.server metrics: on /metrics, and by OTLP where that is on.

Names, units, bounds and labels are those of
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import Histogram

from router_svc.tracing.outcomes import OK

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry

    from router_svc.tracing.call import Call

PROVIDER = "octavo"

_LABELS = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "error.type",
)


class _Kind(NamedTuple):
    name: str
    text: str
    bounds: tuple[float, ...]


_DURATION = _Kind(
    "gen_ai.server.request.duration",
    "Seconds from a call to the last byte of its answer.",
    (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_FIRST = _Kind(
    "gen_ai.server.time_to_first_token",
    "Seconds from a call to the first token of its answer, of those that ended well.",
    (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_NEXT = _Kind(
    "gen_ai.server.time_per_output_token",
    "Seconds a token after the first one, on average over an answer that ended well.",
    (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
)


class GenAiMetrics:
    """Three histograms over the calls that make something."""

    def __init__(self, registry: CollectorRegistry, meter: Meter | None = None) -> None:
        self._duration = _recorder(_DURATION, registry, meter)
        self._first = _recorder(_FIRST, registry, meter)
        self._next = _recorder(_NEXT, registry, meter)

    def observe(self, call: Call, model: str, seconds: float, outcome: str) -> None:
        """Counts a call that has ended; `model` is what the client asked for, or ""."""
        # A name that nobody serves is a client's invention: it gets no series of its own.
        asked = model if call.model else ""
        labels = (
            call.operation,
            PROVIDER,
            asked or call.model,
            call.model,
            "" if outcome == OK else outcome,
        )
        self._duration(seconds, labels)
        if outcome != OK:
            return
        if (first := call.time_to_first_token) is not None:
            self._first(first, labels)
        if (following := call.time_per_output_token) is not None:
            self._next(following, labels)


def _recorder(
    kind: _Kind, registry: CollectorRegistry, meter: Meter | None
) -> Callable[[float, tuple[str, ...]], None]:
    """What takes seconds and the values of the labels, "" for one that does not apply."""
    shown = Histogram(
        kind.name.replace(".", "_") + "_seconds",
        kind.text,
        [label.replace(".", "_") for label in _LABELS],
        buckets=kind.bounds,
        registry=registry,
    )
    sent = None
    if meter is not None:
        sent = meter.create_histogram(
            kind.name,
            unit="s",
            description=kind.text,
            explicit_bucket_boundaries_advisory=kind.bounds,
        )

    def record(seconds: float, values: tuple[str, ...]) -> None:
        shown.labels(*values).observe(seconds)
        if sent is not None:
            pairs = zip(_LABELS, values, strict=True)
            sent.record(seconds, {label: value for label, value in pairs if value})

    return record
