"""What the serving path costs: CPU time per token of engine process and router, and the delay.

    python -m tests.bench.serving_path [--model smollm2] [--streams 1,8,32] [--path completions]

Real processes over a decoder that only sleeps (tests.support.paced_engine), so that whatever CPU
time they use goes to scheduling, batching, gRPC, text and HTTP. Printed per number of streams:

    engine, router   microseconds of CPU per token, over all threads of the process
    delay            from the end of a step to the client's read of its token: median, and 99 of 100
    between steps    what the engine's thread needs from one step's end to the next one's begin
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import click
import httpx
import numpy as np
import orjson
import uvloop
from octavo.cache_dir import default_cache_dir

from router_svc.model_store import resolve_model
from tests.support.paced_engine import STEP_SECONDS, TOKEN_SECONDS, StepLog
from tests.support.server import free_port

_PROMPT = "Tell a traveller about small books. "
_WARM_SECONDS = 1.5
_BODIES = {
    "completions": {"prompt": _PROMPT},
    "chat/completions": {"messages": [{"role": "user", "content": _PROMPT}]},
}


class Client(asyncio.Protocol):
    """One stream after another on one connection; keeps when each read came."""

    def __init__(self, request: bytes, reads: list[float]) -> None:
        self._request = request
        self._reads = reads
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._reads.append(time.monotonic())
        if b"HTTP/1.1 4" in data or b"HTTP/1.1 5" in data:
            raise RuntimeError(data.decode())
        if data.endswith(b"0\r\n\r\n"):
            self._transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


@contextmanager
def running(command: list[str]):
    """A process, ended by SIGTERM."""
    process = subprocess.Popen([sys.executable, "-m", *command], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def cpu_seconds(process: subprocess.Popen[bytes]) -> dict[int, float]:
    """CPU time of each thread so far; see proc_pid_schedstat in proc(5)."""
    threads = {}
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        threads[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return threads


async def load(port: int, path: str, streams: int, tokens: int, measure) -> list[float]:
    """Keeps so many streams going while `measure` runs in a thread; when reads came."""
    body = _BODIES[path] | {
        "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True,
    }  # fmt: skip
    text = orjson.dumps(body)
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(text)}\r\n\r\n"
    )
    reads: list[float] = []
    loop = asyncio.get_running_loop()
    ends = [
        await loop.create_connection(lambda: Client(head.encode() + text, reads), "127.0.0.1", port)
        for _ in range(streams)
    ]
    await asyncio.to_thread(measure)
    for transport, client in ends:
        transport.abort()
        await client.lost
    return reads


def report(name: str, before: dict[int, float], after: dict[int, float], tokens: float) -> str:
    """Microseconds per token: all, the main thread's (the event loop), the busiest other one's."""
    main, *others = ((after[tid] - before.get(tid, 0.0)) / tokens * 1e6 for tid in sorted(after))
    busiest = max(others)
    return f"{name} {main + sum(others):6.1f} µs/token (loop {main:.0f}, {busiest:.0f})"


@click.command()
@click.option("--model", default="smollm2", show_default=True)
@click.option("--streams", default="1,8,32", show_default=True)
@click.option("--path", type=click.Choice(list(_BODIES)), default="completions", show_default=True)
@click.option("--seconds", default=5.0, show_default=True)
@click.option("--tokens", default=256, show_default=True, help="Output tokens of a stream.")
def main(model: str, streams: str, path: str, seconds: float, tokens: int) -> None:
    """Measures the serving path."""
    file = resolve_model(model, default_cache_dir())
    with tempfile.TemporaryDirectory() as directory:
        socket, steps_file = f"unix:{directory}/engine.sock", f"{directory}/steps"
        port, grpc_port = free_port(), free_port()
        engine_command = ["tests.support.paced_engine", steps_file, str(file), "--listen", socket]
        router_command = ["router_svc", "router", str(file), "--engines", socket]
        router_command += ["--port", str(port), "--grpc-port", str(grpc_port)]
        with running(engine_command) as engine, running(router_command) as router:
            while not healthy(port):
                time.sleep(0.1)
            log = StepLog(Path(steps_file), create=False)
            for count in map(int, streams.split(",")):
                _measure(log, engine, router, port, path, count, tokens, seconds)


def healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def _measure(log, engine, router, port, path, streams, tokens, seconds) -> None:
    marks: list[tuple[float, dict[int, float], dict[int, float]]] = []

    def mark() -> None:
        marks.append((time.monotonic(), cpu_seconds(engine), cpu_seconds(router)))

    def measure() -> None:
        time.sleep(_WARM_SECONDS)
        mark()
        time.sleep(seconds)
        mark()

    reads = np.array(uvloop.run(load(port, path, streams, tokens, measure)))
    (begin, engine_before, router_before), (end, engine_after, router_after) = marks
    steps = log.between(begin, end)
    num_tokens = steps[:, 1].sum()
    reads = reads[(reads > steps[0, 0]) & (reads < end)]
    delays = reads - steps[np.searchsorted(steps[:, 0], reads) - 1, 0]
    median, tail = np.percentile(delays, [50, 99]) * 1e3
    between = np.diff(steps[:, 0]) - STEP_SECONDS - TOKEN_SECONDS * streams
    click.echo(
        f"{streams:3} streams, {num_tokens / (end - begin):5.0f} tokens/s, "
        f"{len(reads) / num_tokens:.2f} reads/token: "
        f"{report('engine', engine_before, engine_after, num_tokens)}, "
        f"{report('router', router_before, router_after, num_tokens)}; "
        f"delay {median:.2f}, {tail:.2f} ms; between steps {np.median(between) * 1e3:.2f} ms"
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
