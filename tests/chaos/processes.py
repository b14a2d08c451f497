"""Three engines behind proxies, and two routers that find them in a file: processes to be harmed.

clients ──► router 0, router 1 ──► proxy 0..2 ──► engine 0..2
                └── file:targets ──────┘
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from engine_svc.loader.open_model import open_model
from tests.chaos.tcp_proxy import TcpProxy
from tests.support.held_engine import Gate
from tests.support.peft_files import peft_config, peft_tensors, write_peft
from tests.support.plain_http import NO_AUTHORITIES
from tests.support.server import free_port

MODEL = "tiny"
ADAPTERS = ("tiny-a", "tiny-b")  # of the model, which every engine has
START_SECONDS = 200.0  # of a process on a crowded machine
GRACE_SECONDS = 30.0  # that a drain may take
_POLL_SECONDS = 0.05

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Child:
    """A process that is started again and again, each time with a log of its own."""

    def __init__(self, name: str, scratch: Path) -> None:
        self.name = name
        self.busy = False  # a fault has it
        self.starts = 0
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """What to run."""
        raise NotImplementedError

    @property
    def log(self) -> Path:
        """What the running process has written."""
        return self._scratch / f"{self.process_name}.log"

    @property
    def process_name(self) -> str:
        """Which of its starts this is."""
        return f"{self.name}.{self.starts}"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it and returns at once. What was there before has ended, or is about to."""
        if self._process is not None:
            self._process.wait(60)
        self.starts += 1
        with self.log.open("wb") as sink:
            self._process = subprocess.Popen(
                self.command(), stdout=sink, stderr=subprocess.STDOUT, env=os.environ
            )

    def send(self, number: signal.Signals) -> None:
        """Sends a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    async def kill(self) -> None:
        """kill -9."""
        self.send(signal.SIGKILL)
        await self.exit_code(60.0)

    async def drain(self) -> int:
        """SIGTERM; the exit code. Raises TimeoutError if it outstays its grace."""
        self.send(signal.SIGTERM)
        return await self.exit_code(GRACE_SECONDS + 60.0)

    async def exit_code(self, seconds: float) -> int:
        """The exit code, once it has ended. Raises TimeoutError."""
        if self._process is None:
            return 0
        await asyncio.to_thread(_ended, self._process, seconds)
        return self._process.returncode

    def stop(self) -> None:
        """The end of the run: at once."""
        if self.alive and self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()


class Engine(Child):
    """An engine behind its proxy; its `gate`, where it has one, is open at first."""

    def __init__(
        self, number: int, model: Path, scratch: Path, args: Sequence[str], *, gated: bool
    ) -> None:
        super().__init__(f"engine{number}", scratch)
        self._model = model
        self._args = args
        gate_file = scratch / f"{self.name}.gate"
        self.gate = Gate(gate_file, create=True) if gated else None
        if self.gate is not None:
            self.gate.open()
        self._program = ["tests.support.gated_engine", str(gate_file)] if gated else ["engine_svc"]
        self.proxy = TcpProxy(free_port())

    def command(self) -> Sequence[str]:
        """Ends with the process that starts it, whatever becomes of that."""
        listen = f"127.0.0.1:{self.proxy.upstream_port}"
        command = [sys.executable, "-m", *self._program, str(self._model), "--listen", listen]
        command += ["--served-model-name", MODEL, "--dtype", "bfloat16", "--threads", "1"]
        return [*command, f"--exit-with-parent={os.getpid()}", *self._args]

    @property
    def target(self) -> str:
        """Where routers reach it."""
        return f"127.0.0.1:{self.proxy.port}"

    async def said_ready(self) -> float:
        """Waits until it says that it is ready; when that was seen (time.monotonic)."""
        async with asyncio.timeout(START_SECONDS):
            while "engine ready" not in self.log.read_text():
                if not self.alive:
                    raise RuntimeError(f"{self.name} ended:\n{self.log.read_text()}")
                await asyncio.sleep(0.02)
        return time.monotonic()


class Router(Child):
    """A router; its ports stay the same from start to start."""

    def __init__(self, number: int, model: Path, scratch: Path, targets: Path) -> None:
        super().__init__(f"router{number}", scratch)
        self._model = model
        self._targets = targets
        self.port, self._grpc_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.harmed = False  # clients may fail on it

    def command(self) -> Sequence[str]:
        """Tools are allowed although the tiny model's template knows none."""
        command = [sys.executable, "-m", "router_svc", "router", str(self._model)]
        command += ["--engines", f"file:{self._targets}", "--tool-call-parser", "hermes"]
        return [*command, "--port", str(self.port), "--grpc-port", str(self._grpc_port)]

    async def status(self, path: str) -> int:
        """The status of a GET; 0 if there is no answer within 2 s."""
        try:
            async with httpx.AsyncClient(timeout=2, verify=NO_AUTHORITIES) as client:
                return (await client.get(self.url + path)).status_code
        except httpx.TransportError:
            return 0

    async def sees(self, engine: Engine) -> bool:
        """Whether it would send requests to an engine."""
        name = "octavo_router_engine_ready"
        return total(await self.samples(), name, target=engine.target) == 1

    async def until_sees(self, engine: Engine) -> None:
        """Waits until it does, or is harmed itself. Raises TimeoutError."""
        deadline = time.monotonic() + START_SECONDS
        while not (self.harmed or await self.sees(engine)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} has not found {engine.name}")
            await asyncio.sleep(_POLL_SECONDS)

    async def samples(self) -> Samples:
        """Every sample of /metrics by name and labels; none if it does not answer."""
        try:
            async with httpx.AsyncClient(timeout=30, verify=NO_AUTHORITIES) as client:
                text = (await client.get(f"{self.url}/metrics")).text
        except httpx.TransportError:
            return {}
        return {
            (one.name, frozenset(one.labels.items())): one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
        }


def _ended(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"a process has not ended within {seconds:g} s") from error


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum over all samples of a name that have these labels."""
    wanted = labels.items()
    return sum(value for (found, has), value in samples.items() if found == name and wanted <= has)


class Cluster:
    """All processes of a run, and what of them a fault may have now."""

    def __init__(
        self,
        model: Path,
        scratch: Path,
        *,
        num_engines: int,
        num_routers: int,
        args: Sequence[str],
        gated: bool,
    ) -> None:
        self._targets = scratch / "targets"
        self.engines = [
            Engine(number, model, scratch, args, gated=gated) for number in range(num_engines)
        ]
        self.routers = [Router(i, model, scratch, self._targets) for i in range(num_routers)]

    async def start(self) -> None:
        """Starts everything and waits until it is ready."""
        for engine in self.engines:
            await engine.proxy.start()
            engine.start()
        self.tell_targets()
        for router in self.routers:
            router.start()
        for engine in self.engines:
            await engine.said_ready()
        for router in self.routers:
            await self.until_found(router)
        await self.until_ready()

    async def stop(self) -> None:
        """Ends everything at once."""
        for child in (*self.routers, *self.engines):
            child.stop()
        for engine in self.engines:
            await engine.proxy.close()

    def tell_targets(self) -> None:
        """Writes the file of targets, in one go."""
        scratch = self._targets.with_suffix(".new")
        scratch.write_text("".join(f"{engine.target}\n" for engine in self.engines))
        scratch.replace(self._targets)

    async def until_ready(self, engines: Sequence[Engine] | None = None) -> None:
        """Waits until every router that serves is ready for these engines. Raises TimeoutError."""
        for router in self.routers:
            for engine in self.engines if engines is None else engines:
                await router.until_sees(engine)

    async def until_found(self, router: Router) -> None:
        """Waits until a router that was started has found an engine. Raises TimeoutError."""
        async with asyncio.timeout(START_SECONDS):
            while await router.status("/health") != 200:
                if not router.alive:
                    raise RuntimeError(f"{router.name} ended:\n{router.log.read_text()}")
                await asyncio.sleep(_POLL_SECONDS)


def _write_adapters(model: Path, scratch: Path) -> list[str]:
    """Writes ADAPTERS, which change most answers; the engines' flags for them."""
    spec = open_model(model).spec
    for seed, name in enumerate(ADAPTERS):
        write_peft(scratch / name, peft_tensors(spec, seed=seed, std=0.2), peft_config())
    return [f"--lora-modules={name}={scratch / name}" for name in ADAPTERS]


@asynccontextmanager
async def running_cluster(
    model: Path,
    scratch: Path,
    *,
    num_engines: int,
    num_routers: int = 1,
    args: Sequence[str] = (),
    gated: bool = False,
) -> AsyncIterator[Cluster]:
    """A cluster that is ready, until the block ends."""
    cluster = Cluster(
        model,
        scratch,
        num_engines=num_engines,
        num_routers=num_routers,
        args=[*args, "--enable-lora", *_write_adapters(model, scratch)],
        gated=gated,
    )
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
