"""What tracing costs: two servers of one model, one that traces, loaded in turn in one run.

    python -m tests.bench.tracing_cost [--model smollm2] [--concurrency 8] [--rounds 32]

Each round loads both, the one that was last in the round before going first, so that a machine
whose speed drifts drifts for both alike. Spans go to a receiver of OTLP over gRPC in a process of
its own, which shares the machine's cores. Printed:

    throughput   output tokens per second, as clients see it; the ratio is the median over rounds
    CPU          of router and engine together, per output token
    spans        that the receiver got per request
    an engine's  CPU time of a request's spans in its engine, their sending included: measured by
                 itself, as it is far below what a busy machine's speed varies by
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import click
import psutil
from octavo.tracing import start_tracing

from engine_svc.service.request_story import RequestStory
from engine_svc.service.tracing import RequestTracer
from tests.support.otlp_receiver import otlp_receiver
from tests.support.server import RunningServer, running_server

_PROMPT = "Number {number}: tell a traveller about small books. "
_GOAL = 0.98


@dataclass
class Round:
    """One server's part of a round."""

    tokens_per_second: float
    cpu_per_token: float  # microseconds


@contextmanager
def receiver_process():
    """A receiver's endpoint, and what asks it how many spans it got."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_receive, args=(theirs,))
    process.start()

    def num_spans() -> int:
        ours.send("count")
        return ours.recv()

    try:
        yield ours.recv(), num_spans
    finally:
        ours.send("end")
        process.join(10)


def _receive(pipe) -> None:
    with otlp_receiver() as receiver:
        pipe.send(receiver.endpoint)
        while pipe.recv() == "count":
            pipe.send(len(receiver.spans))


def cpu_seconds(server: RunningServer) -> float:
    """Of the server and its engines so far."""
    router = psutil.Process(server.process.pid)
    times = [each.cpu_times() for each in (router, *router.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def cpu_of_spans(endpoint: str, num_requests: int = 2000) -> float:
    """Microseconds of CPU, over all threads, to make and send the spans of one request."""
    tracing = start_tracing("bench", endpoint=endpoint, instance_id="bench")
    assert tracing is not None
    tracer = RequestTracer(tracing, model_name="m", instance_id="bench")
    began = time.process_time()
    for number in range(num_requests):
        now = time.monotonic()
        story = RequestStory(
            "text_completion",
            f"request-{number}",
            f"00-{number + 1:032x}-00f067aa0ba902b7-01",
            now - 1.0,
            num_prompt_tokens=100,
            num_output_tokens=64,
            first_scheduled_at=now - 0.9,
            first_token_at=now - 0.8,
            endings=["length"],
        )
        tracer.ended(story, now)
        if number % 100 == 99:
            time.sleep(0.05)  # so that none is dropped
    tracing.close()
    return (time.process_time() - began) / num_requests * 1e6


async def load(server: RunningServer, concurrency: int, num_requests: int, max_tokens: int) -> int:
    """Streams so many answers, at most `concurrency` at once; the number of their tokens."""
    numbers = iter(range(num_requests))

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            body = {
                "prompt": _PROMPT.format(number=number),
                "max_tokens": max_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
            }
            async with session.post(f"{server.url}/v1/completions", json=body) as answer:
                answer.raise_for_status()
                async for _ in answer.content:
                    pass

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(client(session) for _ in range(concurrency)))
    return num_requests * max_tokens


def measure(server: RunningServer, concurrency: int, num_requests: int, max_tokens: int) -> Round:
    """One server's part of a round."""
    cpu, began = cpu_seconds(server), time.perf_counter()
    tokens = asyncio.run(load(server, concurrency, num_requests, max_tokens))
    seconds = time.perf_counter() - began
    return Round(tokens / seconds, (cpu_seconds(server) - cpu) / tokens * 1e6)


@click.command()
@click.option("--model", default="smollm2")
@click.option("--concurrency", default=8)
@click.option("--rounds", default=32)
@click.option("--requests", "num_requests", default=16, help="Of each server and round.")
@click.option("--max-tokens", default=64)
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench/tracing.json"))
def main(
    model: str, concurrency: int, rounds: int, num_requests: int, max_tokens: int, output: Path
) -> None:
    """Loads a server that traces and one that does not, in turn."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        endpoint, num_spans = stack.enter_context(receiver_process())
        size = ("--kv-cache-memory-bytes", str(256 << 20))
        tracing = ("--otlp-traces-endpoint", endpoint)
        servers = {
            "on": stack.enter_context(
                running_server(model, *size, *tracing, log=directory / "on.log")
            ),
            "off": stack.enter_context(running_server(model, *size, log=directory / "off.log")),
        }
        for server in servers.values():  # what is set up lazily is not what is measured
            measure(server, concurrency, concurrency, max_tokens)
        time.sleep(6)  # the last of these spans is on its way for so long
        before = num_spans()
        order = ["on", "off"]
        results: dict[str, list[Round]] = {"on": [], "off": []}
        for number in range(rounds):
            for name in order:
                results[name].append(measure(servers[name], concurrency, num_requests, max_tokens))
            order.reverse()
            pair = [results[name][-1].tokens_per_second for name in ("on", "off")]
            click.echo(f"round {number + 1}: on {pair[0]:.0f}, off {pair[1]:.0f} tok/s", err=True)
        time.sleep(6)
        spans = (num_spans() - before) / (rounds * num_requests)
        own = cpu_of_spans(endpoint)
    report(results, spans, own, concurrency, output)


def report(
    results: dict[str, list[Round]], spans: float, own: float, concurrency: int, output: Path
) -> None:
    """Prints the table, and keeps what it is made of."""
    pairs = list(zip(results["on"], results["off"], strict=True))
    ratios = sorted(on.tokens_per_second / off.tokens_per_second for on, off in pairs)
    ratio = statistics.median(ratios)
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    cpu = {
        name: statistics.median(each.cpu_per_token for each in rounds)
        for name, rounds in results.items()
    }
    speed = {
        name: statistics.median(each.tokens_per_second for each in rounds)
        for name, rounds in results.items()
    }
    click.echo(f"| {concurrency} streams | tracing on | off | on / off |")
    click.echo("|---|---:|---:|---:|")
    click.echo(
        f"| throughput, tok/s | {speed['on']:.0f} | {speed['off']:.0f} | "
        f"{ratio:.3f} (middle half {low:.3f} to {high:.3f}) |"
    )
    click.echo(
        f"| CPU, µs per token | {cpu['on']:.0f} | {cpu['off']:.0f} | {cpu['on'] / cpu['off']:.3f} |"
    )
    click.echo(f"\nspans per request: {spans:.1f}; goal: at least {_GOAL} of the throughput")
    click.echo(f"an engine's spans of one request, made and sent: {own:.0f} µs of CPU")
    output.parent.mkdir(parents=True, exist_ok=True)
    rounds = {name: [vars(each) for each in parts] for name, parts in results.items()}
    output.write_text(
        json.dumps(
            {"ratio": ratio, "spans_per_request": spans, "engine_cpu_us": own} | rounds,
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
