"""Two routers over one engine that a test holds: what stands behind proxies and meshes in tests.

──► router 0 ──┐
               ├──► engine (tests.support.held_engine)
──► router 1 ──┘
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support import plain_http
from tests.support.held_engine import Gate
from tests.support.server import READY_SECONDS, RunningServer, free_port

MODEL = "held"


@dataclass(frozen=True)
class HeldService:
    """The routers, and the gate of the engine's steps; it is open at first."""

    routers: tuple[RunningServer, RunningServer]
    gate: Gate

    def num_calls(self) -> list[int]:
        """Calls of the public API that each router has ended."""
        name = "octavo_router_requests_total"
        return [int(router.metric(name)) for router in self.routers]

    def in_flight(self) -> int:
        """Calls of the public API that are being served."""
        name = "octavo_router_requests_in_flight"
        return int(sum(router.metric(name) for router in self.routers))

    def idle(self) -> bool:
        """Whether no call is being served, and the engine runs nothing and holds no block."""
        return self.in_flight() == 0 and self.routers[0].idle()


@contextmanager
def running_process(
    command: list[str], log: Path, *, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, ended by SIGTERM."""
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, cwd=cwd)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def held_service(model: Path, directory: Path) -> Iterator[HeldService]:
    """Starts engine and routers, and waits until they are ready; files go to `directory`."""
    gate_file, target = directory / "gate", f"unix:{directory / 'engine.sock'}"
    gate = Gate(gate_file, create=True)
    gate.open()
    engine = [sys.executable, "-m", "tests.support.held_engine", str(gate_file), str(model)]
    engine += ["--listen", target, "--served-model-name", MODEL]
    with ExitStack() as stack:
        stack.enter_context(running_process(engine, directory / "engine.log"))
        routers = [
            stack.enter_context(_router(model, target, directory / f"router{i}.log"))
            for i in range(2)
        ]
        for router in routers:
            assert router.wait_until(lambda r=router: _ready(r), READY_SECONDS), router.log
        yield HeldService((routers[0], routers[1]), gate)
        gate.open()  # so that the engine can end


@contextmanager
def _router(model: Path, target: str, log: Path) -> Iterator[RunningServer]:
    port, grpc_port = free_port(), free_port()
    command = [sys.executable, "-m", "router_svc", "router", str(model), "--engines", target]
    command += ["--port", str(port), "--grpc-port", str(grpc_port)]
    with running_process(command, log) as process:
        yield RunningServer(f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", process, log)


def _ready(router: RunningServer) -> bool:
    assert router.process.poll() is None, router.log.read_text()
    try:
        return plain_http.get(f"{router.url}/health", timeout=2).status_code == 200
    except httpx.TransportError:
        return False
