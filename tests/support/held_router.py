"""One router, or several processes of one, over an engine that a test holds."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.held_engine import Gate
from tests.support.held_service import running_process
from tests.support.server import READY_SECONDS, RunningServer, free_port

JSON = {"content-type": "application/json"}
STREAM = {"prompt": "a", "max_tokens": 100, "ignore_eos": True, "stream": True}


@dataclass
class HeldRouter:
    """The router; the gate of the engine's steps, open at first; what ends with it."""

    server: RunningServer
    gate: Gate
    ends: ExitStack

    @property
    def port(self) -> int:
        """Its HTTP port."""
        return int(self.server.url.rpartition(":")[2])

    def connect(self) -> http.client.HTTPConnection:
        """A connection that has served a request and does not connect again by itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.ends.callback(connection.close)
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"ready"}'
        connection.auto_open = 0
        return connection

    def begin(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        """A stream whose first event has come and, of a held engine, whose last cannot."""
        before = self.gate.num_requests
        connection.request("POST", "/v1/completions", json.dumps(STREAM), JSON)
        assert self.server.wait_until(lambda: self.gate.num_requests > before)
        self.gate.let_pass(2)  # one that may have been planned without it, and its first
        response = connection.getresponse()
        assert response.readline().startswith(b"data: ")
        return response

    def accepts(self) -> bool:
        """Whether it takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Tells it to stop, and waits until it no longer listens."""
        self.server.process.send_signal(signal.SIGTERM)
        assert self.server.wait_until(lambda: not self.accepts())


def last_event(response: http.client.HTTPResponse) -> str:
    """The data of a stream's last event."""
    return response.read().decode().rstrip().rsplit("data: ", 1)[1]


@contextmanager
def held_router(model: Path, directory: Path, *flags: str) -> Iterator[HeldRouter]:
    """Starts both, and waits until they are ready; files go to `directory`."""
    gate_file, target = directory / "gate", f"unix:{directory / 'engine.sock'}"
    gate = Gate(gate_file, create=True)
    gate.open()
    port, grpc_port = free_port(), free_port()
    engine = [sys.executable, "-m", "tests.support.held_engine", str(gate_file), str(model)]
    router = [sys.executable, "-m", "router_svc", "router", str(model), "--engines", target, *flags]
    router += ["--port", str(port), "--grpc-port", str(grpc_port)]
    log = directory / "router.log"
    with ExitStack() as stack:
        engine_log = directory / "engine.log"
        stack.enter_context(running_process([*engine, "--listen", target], engine_log))
        process = stack.enter_context(running_process(router, log))
        url = f"http://127.0.0.1:{port}"
        server = RunningServer(url, f"127.0.0.1:{grpc_port}", process, log)

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return "Ready in" in log.read_text()

        assert server.wait_until(ready, READY_SECONDS)
        stack.callback(gate.open)  # so that the engine can end
        yield HeldRouter(server, gate, stack)
