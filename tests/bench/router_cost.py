"""What the router costs: CPU time per token on its whole path, and where it goes.

    python -m tests.bench.router_cost [--model smollm2] [--streams 64] [--profile]

Real processes, sockets and protocols, and an engine without a model (tests.bench.scripted_engine)
that gives each stream one token a step: every 12 ms, as a real one does, and every 3 ms, which is
about what one core carries. CPU time, of all threads of the router's process, counts what the
router does and not how busy the machine is.

    tokens/s per core   what one core carries: 1 s ÷ CPU time per token
    loop, others        the thread of the event loop, and those of gRPC's C core
    messages/token      about 1 where each token is an event or a message of its own, less where
                        several share one; some begin and end answers
    tokens/s            what the engine sent

With --profile the router is sampled by a timer of its CPU time (tests.bench.sampled_router), and
samples are shared out among the stages of the path.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import click
import orjson
import uvloop
from octavo.cache_dir import default_cache_dir
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.model_store import resolve_model
from tests.bench.scripted_engine import TokenCount
from tests.bench.serving_path import cpu_seconds, healthy, running
from tests.support.server import free_port

_PROMPT = "Tell a traveller about small books. "
_WARM_SECONDS = 1.5
_CHAT = [{"role": "user", "content": _PROMPT}]
_HTTP = {
    "completions": {"prompt": _PROMPT},
    "chat/completions": {"messages": _CHAT},
}
_GRPC = "gRPC chat"
_WAYS = [*_HTTP, _GRPC]
_GO_BUILD = Path("build/bench/grpc_load").absolute()
_STREAM_CHAT = "/octavo.inference.v1.Inference/StreamChatCompletion"

# The first of these that the innermost Python frame of a sample is of. C functions, as those of
# protobuf and orjson, belong to the frame that calls them.
_STAGES = (
    ("from the engine", ("engines",)),
    ("failover and pipeline", ("fleet/", "generation", "api/conversation", "aclosing")),
    ("text of tokens", ("choice_text", "text/", "codecs")),
    ("messages of the API", ("api/", "google/protobuf")),
    ("JSON", ("inference_encode", "http/encoding", "_plain_frame", "sse.py:_frame")),
    ("events over HTTP", ("http/", "uvicorn", "starlette", "admission/", "metrics")),
    ("gRPC", ("grpc", "gen/")),
    ("tasks and event loop", ("asyncio", "contextlib", "uvloop", "cli.py", "runners")),
)


class _HttpStream(asyncio.Protocol):
    """One stream after another on one connection; counts events."""

    def __init__(self, request: bytes, counts: collections.Counter[str]) -> None:
        self._request = request
        self._counts = counts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if b"HTTP/1.1 4" in data or b"HTTP/1.1 5" in data:
            raise RuntimeError(data.decode())
        self._counts["messages"] += data.count(b"data: {")
        if data.endswith(b"0\r\n\r\n"):
            self._transport.write(self._request)


async def _load_http(port: int, path: str, streams: int, tokens: int, measure, counts) -> None:
    body = orjson.dumps(_HTTP[path] | {"max_tokens": tokens, "stream": True, "temperature": 0})
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    request = head.encode() + body
    ends = [
        await loop.create_connection(lambda: _HttpStream(request, counts), "127.0.0.1", port)
        for _ in range(streams)
    ]
    await asyncio.to_thread(measure)
    for transport, _ in ends:
        transport.abort()


async def _load_grpc(port: int, streams: int, tokens: int, measure, counts) -> None:
    message = pb.ChatMessage(role=pb.ROLE_USER, content=pb.MessageContent(text=_PROMPT))
    request = pb.CreateChatCompletionRequest(messages=[message], max_tokens=tokens, temperature=0)
    pipe = asyncio.subprocess.PIPE
    client = await asyncio.create_subprocess_exec(
        *(_go_client(), f"127.0.0.1:{port}", _STREAM_CHAT, str(streams)), stdin=pipe, stdout=pipe
    )

    async def follow() -> None:
        async for line in client.stdout:
            counts["messages"] = int(line)

    client.stdin.write(request.SerializeToString())
    client.stdin.close()
    following = asyncio.create_task(follow())
    await asyncio.to_thread(measure)
    client.kill()
    await following
    await client.wait()


@functools.cache
def _go_client() -> str:
    """The program of tests/bench/grpc_load, built: one in Python costs more than the router."""
    program = _GO_BUILD / "load"
    _GO_BUILD.mkdir(parents=True, exist_ok=True)
    libraries = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode"}
    try:
        subprocess.run(
            ["go", "build", "-o", program, Path(__file__).with_name("grpc_load") / "main.go"],
            env={**os.environ, **libraries, "GOCACHE": str(_GO_BUILD / "cache")},
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise click.ClickException(
            f"{_GRPC} needs Go and its gRPC library (make system-deps): {error}"
        ) from error
    return str(program)


@click.command()
@click.option("--model", default="smollm2", show_default=True)
@click.option("--streams", default=64, show_default=True)
@click.option("--seconds", default=5.0, show_default=True)
@click.option("--tokens", default=512, show_default=True, help="Output tokens of a stream.")
@click.option(
    "--step", multiple=True, default=(0.012, 0.003), show_default=True, help="Seconds to a token."
)
@click.option("--runs", default=3, show_default=True, help="Of each way; the median counts.")
@click.option("--way", type=click.Choice(_WAYS), multiple=True, help="Default: all.")
@click.option("--profile/--no-profile", default=False, help="Sample where the time goes.")
def main(
    model: str,
    streams: int,
    seconds: float,
    tokens: int,
    step: tuple[float, ...],
    runs: int,
    way: tuple[str, ...],
    profile: bool,
) -> None:
    """Measures the router."""
    file = resolve_model(model, default_cache_dir())
    ways = list(way) or _WAYS
    for each in step:
        with tempfile.TemporaryDirectory() as directory:
            target = f"unix:{directory}/engine.sock"
            count_file = Path(directory) / "tokens"
            engine = ["tests.bench.scripted_engine", str(file), target, str(each), str(count_file)]
            with running(engine):
                while not count_file.exists():
                    time.sleep(0.1)
                sent = TokenCount(count_file, create=False)
                click.echo(f"{streams} streams, a token every {1000 * each:g} ms")
                if profile:
                    for name in ways:
                        _profile(name, file, target, streams, tokens, seconds, sent, directory)
                else:
                    _measure(ways, file, target, streams, tokens, seconds, runs, sent)


def _router(file: Path, target: str, *before: str) -> tuple[list[str], int, int]:
    port, grpc_port = free_port(), free_port()
    command = [*(before or ("router_svc",)), "router", str(file), "--engines", target]
    return [*command, "--port", str(port), "--grpc-port", str(grpc_port)], port, grpc_port


def _measure(ways, file, target, streams, tokens, seconds, runs, sent) -> None:
    command, port, grpc_port = _router(file, target)
    results = collections.defaultdict(list)
    with running(command) as router:
        while not healthy(port):
            time.sleep(0.1)
        for _ in range(runs):
            for way in ways:
                results[way].append(
                    _run(way, router, port, grpc_port, streams, tokens, seconds, sent)
                )
    click.echo(
        "path              µs/token   loop  others  tokens/s per core  messages/token  tokens/s"
    )
    for way, found in results.items():
        cost, loop, others, ratio, rate = sorted(found)[len(found) // 2]
        click.echo(
            f"{way:17} {cost:8.1f} {loop:6.1f} {others:7.1f} {1e6 / cost:18,.0f} {ratio:15.3f}"
            f" {rate:9.0f}"
        )


def _run(
    way, router, port, grpc_port, streams, tokens, seconds, sent, begin=lambda: None
) -> tuple[float, ...]:
    """µs per token: all, event loop, other threads; messages per token, tokens/s offered."""
    counts: collections.Counter[str] = collections.Counter()
    marks = []

    def mark() -> None:
        marks.append((time.monotonic(), sent.value, cpu_seconds(router), counts["messages"]))

    def measure() -> None:
        time.sleep(_WARM_SECONDS)
        begin()
        mark()
        time.sleep(seconds)
        mark()

    if way == _GRPC:
        _go_client()
        asyncio.run(_load_grpc(grpc_port, streams, tokens, measure, counts))
    else:
        uvloop.run(_load_http(port, way, streams, tokens, measure, counts))
    (start, sent_before, before, counted), (end, sent_after, after, total) = marks
    num_tokens = sent_after - sent_before
    main_thread, *others = sorted(after)
    spent = {tid: (after[tid] - before.get(tid, 0.0)) / num_tokens * 1e6 for tid in after}
    loop = spent[main_thread]
    rest = sum(spent[tid] for tid in others)
    messages = (total - counted) / num_tokens
    return loop + rest, loop, rest, messages, num_tokens / (end - start)


def _profile(way, file, target, streams, tokens, seconds, sent, directory: str) -> None:
    counts_file = Path(directory) / "counts"
    command, port, grpc_port = _router(file, target, "tests.bench.sampled_router", str(counts_file))
    with running(command) as router:
        while not healthy(port):
            time.sleep(0.1)
        cost, _, others, _, _ = _run(
            way, router, port, grpc_port, streams, tokens, seconds, sent,
            lambda: router.send_signal(signal.SIGUSR1),
        )  # fmt: skip
    counts = json.loads(counts_file.read_text())
    stages: collections.Counter[str] = collections.Counter()
    places: collections.Counter[str] = collections.Counter()
    for stack, count in counts.items():
        innermost = stack.partition("|")[0]
        stages[_stage_of(innermost, way)] += count
        places[innermost.rpartition("site-packages/")[2]] += count
    total = sum(counts.values())
    click.echo(f"{way}: {cost:.1f} µs/token, of these {others:.1f} in other threads")
    for stage, count in stages.most_common():
        click.echo(f"  {stage:24} {count / total:6.1%} {cost * count / total:6.1f} µs")
    for place, count in places.most_common(32):
        click.echo(f"      {count / total:6.1%}  {place}")


def _stage_of(place: str, way: str) -> str:
    if way == _GRPC and place.endswith("RequestStream.__aiter__"):
        return "gRPC"  # whose C code comes before it: an interrupt waits for the next Python frame
    with suppress(StopIteration):
        return next(name for name, marks in _STAGES if any(mark in place for mark in marks))
    return "other"


if __name__ == "__main__":
    main()
