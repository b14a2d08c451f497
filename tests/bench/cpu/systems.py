"""What is measured: servers behind HTTP, a library in a process of its own, and the machine."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psutil

from tests.bench.cpu.http_load import run_load
from tests.bench.cpu.machine import family
from tests.bench.cpu.samples import Sample
from tests.bench.cpu.work import Work, WorkMaker

READY_SECONDS = 300.0
STOP_SECONDS = 40.0


class NotAvailableError(Exception):
    """The system is not installed or does not start; the message says which."""


@dataclass(slots=True)
class Program:
    """A process that is started for the benchmark. Its output goes to the file `log`."""

    name: str
    command: Sequence[str]
    needs: Sequence[Path]  # files without which it is not installed
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def spawn(self, extra: Sequence[str] = (), *, piped: bool = False) -> None:
        """Raises NotAvailableError if something is missing."""
        if missing := [path for path in self.needs if not path.exists()]:
            raise NotAvailableError(f"not installed ({missing[0].name} is missing)")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as sink:
            self._process = subprocess.Popen(
                [*self.command, *extra],
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else sink,
                stderr=sink,
                env=os.environ | self.environment,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running process."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process

    def check_alive(self) -> None:
        """Raises NotAvailableError, with the last line that it wrote, if it has ended."""
        if self.process.poll() is not None:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["no output"]
            raise NotAvailableError(f"ended with {self.process.returncode}: {lines[-1][:200]}")

    def send(self, number: signal.Signals) -> None:
        """A signal to the process and all its children."""
        for process in family(self.process.pid):
            process.send_signal(number)

    def stop(self) -> None:
        """Asks it to end, then makes it."""
        if self._process is None:
            return
        children = family(self._process.pid) if self._process.poll() is None else []
        if children:
            self.send(signal.SIGCONT)  # a stopped process hears nothing
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for child in children[1:]:
            if child.is_running():
                child.kill()
        self._process = None


@dataclass(slots=True)
class Server:
    """A server with OpenAI's API. `options(port)` are the arguments that tell it its ports."""

    program: Program
    options: Callable[[int], Sequence[str]]
    role_of: Callable[[psutil.Process], str] = lambda _: "server"
    _port: int = 0

    def start(self) -> None:
        """Returns when it is ready. Raises NotAvailableError."""
        self._port = free_port()
        self.program.spawn(self.options(self._port))
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_healthy():
            self.program.check_alive()
            if time.monotonic() > deadline:
                raise NotAvailableError(f"not ready after {READY_SECONDS:.0f} s")
            time.sleep(0.05)

    def measure(self, work: Work) -> list[Sample]:
        """One sample per request."""
        return run_load(self._port, work)

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Its processes by role."""
        roles: dict[str, list[psutil.Process]] = {}
        for process in family(self.program.process.pid):
            roles.setdefault(self.role_of(process), []).append(process)
        return roles

    def metric(self, name: str) -> float | None:
        """The sum over all labels of one of its Prometheus metrics, or None if there is none."""
        url = f"http://127.0.0.1:{self._port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found)) if found else None

    def _is_healthy(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self._port}/health"
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@dataclass(slots=True)
class Library:
    """A runner that takes one line of JSON per turn (see openvino_runner.py)."""

    program: Program
    prompts: WorkMaker

    def start(self) -> None:
        """Returns when the model is loaded. Raises NotAvailableError."""
        self.program.spawn(piped=True)
        self._read()

    def measure(self, work: Work) -> list[Sample]:
        """One sample per request."""
        task = {
            "prompts": self.prompts.token_ids(work),
            "concurrency": work.shape.concurrency,
            "max_tokens": work.shape.output_tokens,
        }
        stdin = self.program.process.stdin
        assert stdin is not None
        stdin.write(orjson.dumps(task) + b"\n")
        stdin.flush()
        return [Sample(**values) for values in orjson.loads(self._read())]

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Its one process."""
        return {"library": family(self.program.process.pid)}

    def metric(self, _name: str) -> None:
        """It has none."""
        return

    def _read(self) -> bytes:
        stdout = self.program.process.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            self.program.process.wait(STOP_SECONDS)
            self.program.check_alive()
        return line


System = Server | Library


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
