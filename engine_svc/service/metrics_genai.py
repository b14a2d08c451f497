"""The server's metrics of OpenTelemetry's conventions for generative AI, as Prometheus shows them.

Names, attributes and buckets: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/,
with the rules of OpenTelemetry for Prometheus: dots are underscores, and the unit ends the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from engine_svc.scheduling.request import Request

PROVIDER = "octavo"
TEXT_COMPLETION = "text_completion"
EMBEDDINGS = "embeddings"

_REQUEST_SECONDS = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_FAILED = ("timeout", "error")  # outcomes that are the server's


class GenAiMetrics:
    """Observes each choice once, when it ends. An engine gets token ids from its router: what was a
    chat there is a text completion here."""

    def __init__(self, registry: CollectorRegistry, model_name: str, engine: str) -> None:
        """Registers the histograms."""
        labels = {
            "model_name": model_name,
            "engine": engine,
            "gen_ai_operation_name": TEXT_COMPLETION,
            "gen_ai_provider_name": PROVIDER,
            "gen_ai_request_model": model_name,
        }

        def histogram(name: str, text: str, buckets: tuple[float, ...], *more: str) -> Histogram:
            return Histogram(
                f"gen_ai_server_{name}_seconds",
                text,
                (*labels, *more),
                buckets=buckets,
                registry=registry,
            )

        duration = histogram(
            "request_duration", "From receipt to the end.", _REQUEST_SECONDS, "error_type"
        )
        self._durations = {
            (operation, outcome): duration.labels(
                **labels | {"gen_ai_operation_name": operation, "error_type": outcome}
            )
            for operation in (TEXT_COMPLETION, EMBEDDINGS)
            for outcome in ("", *_FAILED)
        }
        self._first_token = histogram(
            "time_to_first_token", "From receipt to the first token.", _FIRST_TOKEN_SECONDS
        ).labels(**labels)
        self._per_token = histogram(
            "time_per_output_token",
            "Mean time of an answer's tokens after the first.",
            _TOKEN_SECONDS,
        ).labels(**labels)

    def on_finished(self, request: Request, num_tokens: int, reason: str, now: float) -> None:
        """A choice ended at `now`, having got `num_tokens` in this attempt."""
        operation = EMBEDDINGS if request.embeds else TEXT_COMPLETION
        self._on_ended(operation, now - request.arrival, reason)
        if request.first_token_at is None:
            return
        self._first_token.observe(request.first_token_at - request.arrival)
        if num_tokens > 1:
            self._per_token.observe((now - request.first_token_at) / (num_tokens - 1))

    def on_encoded(self, seconds: float) -> None:
        """An encoder's input was computed, `seconds` after its receipt."""
        self._on_ended(EMBEDDINGS, seconds, "stop")

    def _on_ended(self, operation: str, seconds: float, reason: str) -> None:
        self._durations[operation, reason if reason in _FAILED else ""].observe(seconds)
