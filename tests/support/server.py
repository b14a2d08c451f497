"""Starts the real server the way a user does, for tests that talk to it."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx

from tests.support import plain_http

READY_SECONDS = 200.0
_FIRST_PORT = 10_000
_PORTS_EACH = 250


@dataclass(frozen=True)
class RunningServer:
    """A router with its engine, ready for requests."""

    url: str  # http://host:port
    grpc_target: str
    process: subprocess.Popen[bytes]
    log: Path

    def metric(self, name: str) -> float:
        """Sum over all label sets of a metric on /metrics; 0 if it has no sample yet."""
        return self._metrics(name)[name]

    def _metrics(self, *names: str) -> dict[str, float]:
        text = plain_http.get(f"{self.url}/metrics").text
        lines = text.splitlines()
        return {
            name: sum(
                float(line.rsplit(" ", 1)[1])
                for line in lines
                if line.startswith((f"{name}{{", f"{name} "))
            )
            for name in names
        }

    def wait_until(self, condition, seconds: float = 60.0) -> bool:
        """Whether the condition came to hold within so many seconds, many for a crowded machine."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.05)
        return condition()

    def idle(self) -> bool:
        """Whether no request runs or waits and no block is in use."""
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return not any(self._metrics(*(f"vllm:{name}" for name in names)).values())


def free_port() -> int:
    """A TCP port that nobody has, and nobody else gets before whoever it is for listens on it.

    A port of the kernel's choice would be free for the next one who lets the kernel choose.
    """
    for port in itertools.islice(_own_ports(), _PORTS_EACH):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"none of {_PORTS_EACH} ports is free")


@cache
def _own_ports() -> Iterator[int]:
    """Ports that the kernel gives to nobody, and no other process of tests takes, in turn."""
    (directory := Path(tempfile.gettempdir()) / f"octavo-ports-{os.getuid()}").mkdir(exist_ok=True)
    lowest = Path("/proc/sys/net/ipv4/ip_local_port_range")
    end = int(lowest.read_text().split()[0]) if lowest.exists() else 32_768
    for first in range(_FIRST_PORT, end - _PORTS_EACH + 1, _PORTS_EACH):
        claim = os.open(directory / str(first), os.O_CREAT | os.O_RDWR)  # until this process ends
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(claim)
            continue
        return itertools.cycle(range(first, first + _PORTS_EACH))
    raise RuntimeError("other processes of tests have all ports")


def launch(model: Path | str, *args: str, log: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """Starts `octavo serve` and returns at once: the process, its HTTP and its gRPC port."""
    port, grpc_port = free_port(), free_port()
    command = [sys.executable, "-m", "router_svc", "serve", str(model)]
    command += ["--port", str(port), "--grpc-port", str(grpc_port), *args, *_share_of_cores(args)]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=os.environ)
    return process, port, grpc_port


def _share_of_cores(args: Sequence[str]) -> list[str]:
    """Threads for an engine beside those of pytest-xdist's other jobs, unless a test says how many.

    Two engines with two threads each take a third longer on two cores than with one.
    """
    jobs = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if jobs == 1 or any(arg.startswith("--threads") for arg in args):
        return []
    return [f"--threads={max(1, len(os.sched_getaffinity(0)) // jobs)}"]


@contextmanager
def running_server(model: Path | str, *args: str, log: Path) -> Iterator[RunningServer]:
    """`octavo serve MODEL ARGS` on free ports, from ready until the block ends."""
    process, port, grpc_port = launch(model, *args, log=log)
    server = RunningServer(f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", process, log)
    try:
        _wait_ready(server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(server: RunningServer) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise RuntimeError(f"the server exited:\n{server.log.read_text()}")
        try:
            if plain_http.get(f"{server.url}/health", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"the server is not ready:\n{server.log.read_text()}")
