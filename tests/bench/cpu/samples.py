"""What was seen of each request, and the speeds that follow from it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(slots=True)
class Sample:
    """One request: when it was sent, when text arrived, what it used. Times in seconds."""

    started: float = field(default_factory=time.perf_counter)
    arrivals: list[float] = field(default_factory=list)  # one per event that carries text
    ended: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a set of requests was answered."""

    output_tok_s: float  # all output tokens over the time from first request to last answer
    decode_tok_s: float  # of one stream, after its first token; median over requests
    prefill_tok_s: float  # prompt tokens over the time to the first token; medians
    ttft_p50_ms: float
    ttft_p95_ms: float
    between_p50_ms: float  # between events with text, whatever the tokens in each


def speed_of(samples: Sequence[Sample]) -> Speed:
    """Raises ValueError, naming the first failure, unless all requests succeeded."""
    for sample in samples:
        if sample.error is not None:
            raise ValueError(sample.error)
        if not sample.arrivals:
            raise ValueError("an answer had no text")
    first = [s.arrivals[0] - s.started for s in samples]
    gaps = [b - a for s in samples for a, b in zip(s.arrivals, s.arrivals[1:], strict=False)]
    per_token = [
        (s.arrivals[-1] - s.arrivals[0]) / (s.completion_tokens - 1)
        for s in samples
        if s.completion_tokens > 1
    ]
    seconds = max(s.ended for s in samples) - min(s.started for s in samples)
    return Speed(
        output_tok_s=sum(s.completion_tokens for s in samples) / seconds,
        decode_tok_s=_inverse(median(per_token)) if per_token else 0.0,
        prefill_tok_s=median(s.prompt_tokens for s in samples) / median(first),
        ttft_p50_ms=1e3 * percentile(first, 50),
        ttft_p95_ms=1e3 * percentile(first, 95),
        between_p50_ms=1e3 * percentile(gaps, 50) if gaps else 0.0,
    )


def _inverse(seconds: float) -> float:
    return 1 / seconds if seconds > 0 else 0.0  # all text came at once


def percentile(values: Sequence[float], q: float) -> float:
    """Between the two nearest values in proportion; `q` in [0, 100], `values` not empty."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * q / 100
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)
