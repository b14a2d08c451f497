"""Prometheus metrics under vLLM's names, so that its dashboards and scalers work unchanged.

What the engine's state says by itself is in metrics_state.py. What is counted here is counted once
per step or per request, never per token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from engine_svc.service.metrics_histogram import StepHistogram
from engine_svc.service.metrics_state import LABELS, AdapterState, StateCollector
from engine_svc.service.speculation_metrics import SpeculationMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_svc.engine import Load
    from engine_svc.scheduling.request import Request

_FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_SECONDS = (
    *(0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0),
    *(50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
FINISHED_REASONS = ("stop", "length", "abort", "timeout", "error")
REJECTION_REASONS = ("queue_full", "draining", "overloaded", "invalid", "expectation")


def one_two_five(maximum: int) -> tuple[int, ...]:
    """Bucket bounds 1, 2, 5, 10, 20, 50 … up to `maximum`."""
    bounds = (digit * 10**power for power in range(10) for digit in (1, 2, 5))
    return tuple(bound for bound in bounds if bound <= maximum)


class EngineMetrics:
    """Counters and histograms of one engine. Only the event loop's side counts."""

    def __init__(
        self,
        *,
        model_name: str,
        engine: str,
        max_model_len: int,
        load: Callable[[], Load],
        cache_config: Mapping[str, str],
        adapters: Callable[[], AdapterState] = AdapterState,
    ) -> None:
        self.registry = CollectorRegistry()
        self._labels = (model_name, engine)
        self._send_seconds = 0.0
        self.registry.register(
            StateCollector(self._labels, load, lambda: self._send_seconds, cache_config, adapters)
        )

        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of scheduled choices.")
        self._cached_tokens = self._counter(
            "prompt_tokens_cached", "Prompt tokens that came from the prefix cache."
        )
        self._generated = self._counter("generation_tokens", "Output tokens.")
        self._cache_queries = self._counter(
            "prefix_cache_queries", "Tokens looked up in the prefix cache."
        )
        self._cache_hits = self._counter("prefix_cache_hits", "Tokens found in the prefix cache.")
        self._preemptions = self._counter(
            "num_preemptions", "Choices that gave up their blocks to others."
        )
        self._finished = self._counters_by(
            "request_success", "Choices that ended.", "finished_reason", FINISHED_REASONS
        )
        self._rejected = self._counters_by(
            "admission_rejections", "Requests refused.", "reason", REJECTION_REASONS
        )

        self.speculation = SpeculationMetrics(self.registry, model_name=model_name, engine=engine)

        lengths = one_two_five(max_model_len)
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "From receipt to the first token.", _FIRST_TOKEN_SECONDS
        )
        self._inter_token = self._step_histogram(
            "Between tokens of a choice.",
            _TOKEN_SECONDS,
            "vllm:inter_token_latency_seconds",
            "vllm:time_per_output_token_seconds",  # the same, by its older name
        )
        self._e2e = self._histogram(
            "e2e_request_latency_seconds", "From receipt to the end.", _REQUEST_SECONDS
        )
        self._queue = self._histogram(
            "request_queue_time_seconds", "From receipt to being scheduled.", _REQUEST_SECONDS
        )
        self._inference = self._histogram(
            "request_inference_time_seconds", "From being scheduled to the end.", _REQUEST_SECONDS
        )
        self._prefill = self._histogram(
            "request_prefill_time_seconds", "From being scheduled to a token.", _REQUEST_SECONDS
        )
        self._decode = self._histogram(
            "request_decode_time_seconds", "From the first token to the end.", _REQUEST_SECONDS
        )
        self._prompt_lengths = self._histogram(
            "request_prompt_tokens", "Prompt tokens of a choice.", lengths
        )
        self._output_lengths = self._histogram(
            "request_generation_tokens", "Output tokens of a choice.", lengths
        )
        self._step_tokens = self._step_histogram(
            "Tokens computed in a step.", _STEP_TOKENS, "vllm:iteration_tokens_total"
        )
        self._step_seconds = self._step_histogram(
            "From a step's first command to its outputs.", _STEP_SECONDS, "octavo_step_seconds"
        )

    @property
    def labels(self) -> dict[str, str]:
        """Those that every metric has."""
        return dict(zip(LABELS, self._labels, strict=True))

    def exposition(self) -> bytes:
        """All metrics in the text exposition format."""
        return generate_latest(self.registry)

    def on_step(
        self, num_tokens: int, seconds: float, num_sampled: int = 0, num_preempted: int = 0
    ) -> None:
        """A step was computed, in `seconds`."""
        self._step_tokens.observe(num_tokens)
        self._step_seconds.observe(seconds)
        if num_sampled:
            self._generated.inc(num_sampled)
        if num_preempted:
            self._preemptions.inc(num_preempted)

    def on_sent(self, seconds: float) -> None:
        """A step's outputs were put into their messages, which took so long."""
        self._send_seconds += seconds

    def on_admitted(self, num_prompt_tokens: int, num_cached_tokens: int) -> None:
        """A choice was scheduled for the first time."""
        self._prompt_tokens.inc(num_prompt_tokens)
        self._cache_queries.inc(num_prompt_tokens)
        if num_cached_tokens:
            self._cached_tokens.inc(num_cached_tokens)
            self._cache_hits.inc(num_cached_tokens)

    def on_first_token(self, seconds: float) -> None:
        """A choice got its first token, `seconds` after its receipt."""
        self._first_token.observe(seconds)

    def on_tokens(self, seconds: float, count: int) -> None:
        """So many choices got a further token, each `seconds` after the one before."""
        self._inter_token.observe(seconds, count)

    def on_finished(
        self, request: Request, num_output_tokens: int, reason: str, now: float
    ) -> None:
        """A choice ended for one of FINISHED_REASONS."""
        self._finished[reason].inc()
        self._e2e.observe(now - request.arrival)
        scheduled, first = request.first_scheduled_at, request.first_token_at
        self._queue.observe((now if scheduled is None else scheduled) - request.arrival)
        if scheduled is not None:
            self._inference.observe(now - scheduled)
            self._prefill.observe((now if first is None else first) - scheduled)
        if first is not None:
            self._decode.observe(now - first)
        self._prompt_lengths.observe(request.num_prompt_tokens)
        self._output_lengths.observe(num_output_tokens)

    def on_encoded(self, num_tokens: int, arrival: float, scheduled_at: float, now: float) -> None:
        """An encoder's input was computed in the step that began at `scheduled_at`."""
        self._prompt_tokens.inc(num_tokens)
        self._finished["stop"].inc()
        self._e2e.observe(now - arrival)
        self._queue.observe(scheduled_at - arrival)
        self._inference.observe(now - scheduled_at)
        self._prompt_lengths.observe(num_tokens)

    def on_not_encoded(self, count: int, reason: str) -> None:
        """So many of an encoder's inputs ended without a result, for one of FINISHED_REASONS."""
        self._finished[reason].inc(count)

    def on_rejected(self, reason: str) -> None:
        """A request was refused for one of REJECTION_REASONS."""
        self._rejected[reason].inc()

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"vllm:{name}", text, LABELS, registry=self.registry)
        return counter.labels(*self._labels)

    def _counters_by(
        self, name: str, text: str, label: str, values: tuple[str, ...]
    ) -> dict[str, Counter]:
        counter = Counter(f"vllm:{name}", text, (*LABELS, label), registry=self.registry)
        return {value: counter.labels(*self._labels, value) for value in values}

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, LABELS, buckets=buckets, registry=self.registry)
        return histogram.labels(*self._labels)

    def _step_histogram(self, text: str, bounds: tuple[float, ...], *names: str) -> StepHistogram:
        histogram = StepHistogram(names, text, self._labels, bounds)
        self.registry.register(histogram)
        return histogram
