"""Prefix-aware routing against round-robin: time to the first token, hit rate, load of each engine.

    python -m tests.bench.routing [--rate 8] [--requests 240] [--runs 2] [--real]

Three real engine processes and a real router for each policy, all at once. Requests begin with one
of eight prefixes of 500 tokens, go on with 24 tokens of their own, and arrive by themselves
(Poisson): the same for each policy, in turns, and every run under a cache salt of its own, so that
it begins cold.

A pool has `--blocks` blocks of 16 tokens, for 3 to 4 of the prefixes beside what runs: as in
production, where a cache is always too small for all prompts there are.

Engines take their time without using the processor (tests.support.paced_engine: 4 ms a step and
0.4 ms a token), as if each had a machine of its own; with --real they compute, and share the cores.

    hit rate     prompt tokens that an engine had cached, of those in common (whole blocks of
                 a prefix); the first request of a prefix is a miss
    of prompt    the same, of all prompt tokens
    spread       prompt tokens computed and tokens generated of the busiest engine, over those of
                 the idlest
"""

from __future__ import annotations

import asyncio
import collections
import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import grpc
import httpx
import numpy as np
import orjson
from octavo.cache_dir import default_cache_dir
from octavo.engine.v1 import telemetry_pb2, telemetry_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from router_svc.model_store import resolve_model
from router_svc.text.tokenizer import Tokenizer
from tests.bench.serving_path import healthy, running
from tests.support.server import free_port

_POLICIES = ("round_robin", "prefix_aware")
_NUM_ENGINES = 3
_NUM_PREFIXES = 8
_PREFIX_TOKENS = 500
_OWN_TOKENS = 24
_OUTPUT_TOKENS = 16
_BLOCK_SIZE = 16
_SHAREABLE = _PREFIX_TOKENS // _BLOCK_SIZE * _BLOCK_SIZE
_WORDS = ("harbour", "lantern", "clock", "bread", "ship", "river", "stone", "letter", "winter")


@dataclass(frozen=True)
class Arrival:
    """A request: when, in seconds from the run's beginning, and its prompt's token ids."""

    at: float
    prompt: list[int]


@dataclass(frozen=True)
class Answer:
    """What became of it."""

    first_token_seconds: float
    prompt_tokens: int
    cached_tokens: int


def arrivals(tokenizer: Tokenizer, count: int, rate: float, seed: int) -> list[Arrival]:
    """Requests with one of the prefixes each, none in favour."""
    rng = random.Random(seed)

    def text(num_tokens: int) -> list[int]:
        words = " ".join(rng.choice(_WORDS) for _ in range(num_tokens))
        return tokenizer.encode(words, add_special_tokens=False, parse_special=False)[:num_tokens]

    prefixes = [text(_PREFIX_TOKENS) for _ in range(_NUM_PREFIXES)]
    at, found = 0.0, []
    for _ in range(count):
        at += rng.expovariate(rate)
        found.append(Arrival(at, rng.choice(prefixes) + text(_OWN_TOKENS)))
    return found


async def send(client: httpx.AsyncClient, arrival: Arrival, started: float, salt: str) -> Answer:
    """Sends a request when its time has come."""
    await asyncio.sleep(started + arrival.at - time.monotonic())
    body = {
        "prompt": arrival.prompt, "max_tokens": _OUTPUT_TOKENS, "ignore_eos": True,
        "temperature": 0, "cache_salt": salt, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    sent_at, first, usage = time.monotonic(), None, None
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            raise RuntimeError((await response.aread()).decode())
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                first = first or time.monotonic()
                usage = orjson.loads(line[6:]).get("usage") or usage
    assert first is not None, "an answer without a token"
    assert usage is not None, "an answer without its usage"
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answer(first - sent_at, usage["prompt_tokens"], cached)


async def run(port: int, requests: list[Arrival], salt: str) -> list[Answer]:
    """All answers of one run."""
    limits = httpx.Limits(max_connections=None)
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=300) as client:
        started = time.monotonic()
        return await asyncio.gather(*(send(client, each, started, salt) for each in requests))


def tokens_of(target: str) -> float:
    """Prompt tokens that an engine has computed and tokens it has generated."""
    with grpc.insecure_channel(target) as channel:
        stub = telemetry_pb2_grpc.TelemetryStub(channel)
        text = stub.GetMetrics(telemetry_pb2.GetMetricsRequest()).exposition.decode()
    totals: collections.Counter[str] = collections.Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals[sample.name] += sample.value
    asked = totals["vllm:prompt_tokens_total"] - totals["vllm:prefix_cache_hits_total"]
    return asked + totals["vllm:generation_tokens_total"]


def row(policy: str, answers: list[Answer], loads: list[float]) -> str:
    """A line of the table."""
    first = np.array([answer.first_token_seconds for answer in answers]) * 1e3
    p50, p95 = np.percentile(first, [50, 95])
    cached = sum(answer.cached_tokens for answer in answers)
    prompt = sum(answer.prompt_tokens for answer in answers)
    shares = " ".join(f"{load:6.0f}" for load in loads)
    return (
        f"{policy:13} {p50:8.0f} ms {p95:8.0f} ms {cached / (_SHAREABLE * len(answers)):9.1%}"
        f" {cached / prompt:9.1%}   {shares} {max(loads) / min(loads):7.2f}"
    )


@click.command()
@click.option("--model", default="smollm2", show_default=True)
@click.option("--rate", default=8.0, show_default=True, help="Requests that arrive a second.")
@click.option("--requests", "count", default=240, show_default=True, help="Of a run.")
@click.option("--runs", default=2, show_default=True, help="Of each policy, in turns.")
@click.option("--blocks", default=124, show_default=True, help="KV blocks of each engine.")
@click.option("--real/--paced", default=False, help="Let engines compute.")
@click.option("--explain", default=0, help="Show why so many of a run's last requests went where.")
def main(
    model: str, rate: float, count: int, runs: int, blocks: int, real: bool, explain: int
) -> None:
    """Compares the policies."""
    file = resolve_model(model, default_cache_dir())
    tokenizer = Tokenizer.load(file)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        targets = [f"unix:{directory}/engine{i}.sock" for i in range(_NUM_ENGINES)]
        for i, target in enumerate(targets):
            module = ["engine_svc"] if real else ["tests.support.paced_engine", f"{directory}/s{i}"]
            flags = ["--num-gpu-blocks-override", str(blocks), "--block-size", str(_BLOCK_SIZE)]
            flags += ["--max-model-len", "1024", "--threads", "1"]
            stack.enter_context(running([*module, str(file), "--listen", target, *flags]))
        ports = {policy: free_port() for policy in _POLICIES}
        for policy, port in ports.items():
            command = ["router_svc", "router", str(file), "--routing-policy", policy]
            command += ["--port", str(port), "--grpc-port", str(free_port())]
            command += [word for target in targets for word in ("--engines", target)]
            stack.enter_context(running(command))
        for port in ports.values():
            _wait_for_all(port)
        click.echo(
            f"{count} requests a run, {rate:g} a second; {_NUM_PREFIXES} prefixes of"
            f" {_PREFIX_TOKENS} tokens; {_NUM_ENGINES} engines of {blocks} blocks\n"
            "policy        TTFT p50    TTFT p95   hit rate  of prompt   tokens of each engine"
            "  spread"
        )
        everything: dict[str, list[Answer]] = collections.defaultdict(list)
        for number in range(runs):
            requests = arrivals(tokenizer, count, rate, seed=number)
            for policy, port in ports.items():
                before = [tokens_of(target) for target in targets]
                answers = asyncio.run(run(port, requests, f"{number} {policy}"))
                loads = [tokens_of(t) - b for t, b in zip(targets, before, strict=True)]
                everything[policy] += answers
                click.echo(row(policy, answers, loads))
                for each in requests[len(requests) - explain :]:
                    _explain(
                        port,
                        tokenizer.decode(each.prompt, skip_special_tokens=True),
                        f"{number} {policy}",
                    )
        medians = [
            np.median([answer.first_token_seconds for answer in everything[policy]])
            for policy in _POLICIES
        ]
        click.echo(f"median time to first token: {medians[0] / medians[1]:.1f} times lower")


def _wait_for_all(port: int) -> None:
    while not healthy(port):
        time.sleep(0.1)
    body = {"prompt": "Which engine?"}
    while True:
        answer = httpx.post(f"http://127.0.0.1:{port}/explain_route", json=body).json()
        if sum(each["may_serve"] for each in answer["candidates"]) == _NUM_ENGINES:
            return
        time.sleep(0.1)


def _explain(port: int, prompt: str, salt: str) -> None:
    body = {"prompt": prompt, "cache_salt": salt}
    answer = httpx.post(f"http://127.0.0.1:{port}/explain_route", json=body).json()
    for each in answer["candidates"]:
        click.echo(f"    {each['engine'][-12:]} {each['cost']} {each['reason']}")


if __name__ == "__main__":
    main()
