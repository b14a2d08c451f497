"""Runs engines as child processes of `octavo serve`, on Unix sockets of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.flags import without_process_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

_RESTART_SECONDS = 1.0


class EngineExitedError(Exception):
    """The engine ended before it was ever ready; it has said why on stderr."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the engine exited with code {exit_code} before it was ready")
        self.exit_code = exit_code


class EngineProcess:
    """One engine: `python -m engine_svc MODEL …`, started again when it dies after being ready.

    Used as an async context manager; leaving it drains and ends the child.
    """

    def __init__(self, model: Path, args: Sequence[str], *, shutdown_timeout: float) -> None:
        self._model = model
        self._args = list(args)
        self._shutdown_timeout = shutdown_timeout
        self._directory = tempfile.TemporaryDirectory(prefix="octavo-")
        self.target = f"unix:{Path(self._directory.name) / 'engine.sock'}"
        self.was_ready = False
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EngineProcess:
        self._supervisor = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(self, *_: object) -> None:
        supervisor, process = self._supervisor, self._process
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self._shutdown_timeout + 5):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._directory.cleanup()

    async def failed(self) -> None:
        """Waits for as long as the engine is healthy; raises EngineExitedError otherwise."""
        if self._supervisor is not None:
            await asyncio.shield(self._supervisor)

    async def _supervise(self) -> None:
        while True:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "engine_svc", str(self._model),
                "--listen", self.target, f"--exit-with-parent={os.getpid()}", *self._args,
                # Ctrl-C reaches the router alone, which drains before it ends the engine.
                start_new_session=True,
                # Clients' keys are the router's alone.
                env=_engine_environment(),
            )  # fmt: skip
            exit_code = await self._process.wait()
            if not self.was_ready:
                raise EngineExitedError(exit_code)
            log.error("the engine exited with code %d; starting it again", exit_code)
            await asyncio.sleep(_RESTART_SECONDS)


def _engine_environment() -> dict[str, str]:
    environment = without_process_variables(os.environ)
    environment.pop("OCTAVO_API_KEY", None)
    return environment


class EngineProcesses:
    """Several engines of one model, which share the machine's cores.

    Used as an async context manager. The first that ends before it was ever ready ends them all.
    """

    def __init__(
        self, model: Path, args: Sequence[str], *, count: int, shutdown_timeout: float
    ) -> None:
        shared = _shared_cores(args, count)
        self._engines = [
            EngineProcess(model, [*args, *shared], shutdown_timeout=shutdown_timeout)
            for _ in range(count)
        ]

    @property
    def targets(self) -> list[str]:
        """Where each is reached."""
        return [engine.target for engine in self._engines]

    def mark_ready(self, target: str) -> bool:
        """Notes that an engine is ready; True when it was the last one to become so."""
        engine = next(each for each in self._engines if each.target == target)
        if engine.was_ready:
            return False
        engine.was_ready = True
        return all(each.was_ready for each in self._engines)

    async def __aenter__(self) -> EngineProcesses:
        for engine in self._engines:
            await engine.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(engine.__aexit__() for engine in self._engines))

    async def failed(self) -> None:
        """Waits for as long as all are healthy; raises EngineExitedError otherwise."""
        await asyncio.gather(*(engine.failed() for engine in self._engines))


def _shared_cores(args: Sequence[str], count: int) -> list[str]:
    """Each engine's share of the cores, unless their number is given."""
    if count == 1 or any(arg.startswith("--threads") for arg in args):
        return []
    return [f"--threads={max(1, len(os.sched_getaffinity(0)) // count)}"]
