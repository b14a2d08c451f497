"""Runs a workload at each concurrency: a closed loop with so many requests always in flight."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from router_svc.bench.clients import Client, Sample
    from router_svc.bench.workload import PromptMaker


@dataclass(frozen=True, slots=True)
class Level:
    """What was measured at one concurrency. Durations in milliseconds."""

    concurrency: int
    num_requests: int
    num_errors: int
    seconds: float
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_second: float
    ttft_p50: float
    ttft_p95: float
    inter_token_p50: float
    inter_token_p95: float
    first_error: str | None

    def as_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)


async def run_level(
    client: Client,
    prompts: PromptMaker,
    numbers: Iterator[int],
    concurrency: int,
    num_requests: int,
    on_done: Callable[[], None],
) -> Level:
    """Sends `num_requests`, `concurrency` at a time, each with a prompt of its own."""
    todo = iter([prompts.prompt(next(numbers)) for _ in range(num_requests)])
    samples: list[Sample] = []

    async def worker() -> None:
        for prompt in todo:
            samples.append(await client.run(prompt))
            on_done()

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return _summary(concurrency, samples, time.perf_counter() - started)


async def warm_up(client: Client, prompts: PromptMaker, num_requests: int) -> None:
    """Sends requests whose times do not count. Raises RuntimeError if the server refuses them."""
    for number in range(num_requests):
        sample = await client.run(prompts.prompt(-1 - number))
        if sample.error is not None:
            raise RuntimeError(f"the server does not answer: {sample.error}")


def request_numbers() -> Iterator[int]:
    """Numbers of prompts, never repeated within a run."""
    return itertools.count()


def _summary(concurrency: int, samples: Sequence[Sample], seconds: float) -> Level:
    good = [sample for sample in samples if sample.error is None]
    errors = [sample.error for sample in samples if sample.error is not None]
    first = [(s.arrivals[0] - s.started) * 1e3 for s in good if s.arrivals]
    gaps = [gap * 1e3 for s in good for gap in np.diff(s.arrivals)]
    output_tokens = sum(sample.completion_tokens for sample in good)
    return Level(
        concurrency=concurrency,
        num_requests=len(samples),
        num_errors=len(errors),
        seconds=seconds,
        prompt_tokens=sum(sample.prompt_tokens for sample in good),
        output_tokens=output_tokens,
        output_tokens_per_second=output_tokens / seconds,
        ttft_p50=_percentile(first, 50),
        ttft_p95=_percentile(first, 95),
        inter_token_p50=_percentile(gaps, 50),
        inter_token_p95=_percentile(gaps, 95),
        first_error=errors[0] if errors else None,
    )


def _percentile(values: Sequence[float], q: float) -> float:
    return float(np.percentile(values, q)) if values else float("nan")
