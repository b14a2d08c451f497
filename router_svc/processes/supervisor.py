"""The parent of several router processes: it starts them, replaces dead ones, and ends them.

            ┌─ worker ─┐
 parent ────┼─ worker ─┼── each with its own connections to all engines
            └─ worker ─┘
 keeps the ports, sums metrics     all listen on the same two ports,
                                   and count tenants' minutes in one table

It serves nobody itself and holds no model.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from octavo.endings import ending_signals

from router_svc.admission.shared_buckets import new_table
from router_svc.engines.info import EngineInfo
from router_svc.processes.control import Control, ControlClosedError
from router_svc.processes.ports import reserve
from router_svc.processes.sums import Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from router_svc.processes.sums import Family

log = logging.getLogger(__name__)

_RESTART_SECONDS = 0.1
_AGAIN_SECONDS = 1.0  # between the deaths of a worker that never comes to listen
_ASK_SECONDS = 2.0
_POLL_SECONDS = 1.0  # how much of its counts a killed worker may take with it
_KILL_SECONDS = 10.0  # beyond the time that requests get to finish


class WorkerExitedError(Exception):
    """A worker ended before it ever listened; it has said why on stderr."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"a router process exited with code {exit_code} before it listened")
        self.exit_code = exit_code


class _Worker:
    """One process and the connection to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.control: Control | None = None
        self.hearing: asyncio.Task[None] | None = None
        self.listens = False
        self.ready: set[str] = set()  # targets of engines

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal if it still runs."""
        if self.process.returncode is None:
            self.process.send_signal(number)


class Supervisor:
    """Runs `count` processes of the command line that started this one."""

    def __init__(
        self,
        paths: Sequence[Path],
        targets: Sequence[str],
        params: Mapping[str, Any],
        on_ready: Callable[[str, EngineInfo], None],
    ) -> None:
        """`on_ready` hears of each engine that all of the workers have come to reach."""
        self._paths = paths
        self._targets = targets
        self._params = params
        self._on_ready = on_ready
        self._count: int = params["workers"]
        self._workers: list[_Worker | None] = [None] * self._count
        self._totals = Totals()
        self._reserved: list[socket.socket] = []
        self._limits_fd = new_table()
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Takes both ports. Raises OSError when one is taken."""
        host = self._params["host"]
        for name, protocol in (("port", "HTTP"), ("grpc_port", "gRPC")):
            self._reserved.append(reserve(host, self._params[name], protocol))

    @property
    def ports(self) -> dict[str, int]:
        """What was taken, by the flags' names."""
        taken = (reserved.getsockname()[1] for reserved in self._reserved)
        return dict(zip(("port", "grpc_port"), taken, strict=True))

    async def close(self) -> None:
        """Gives the ports back, and the table of limits."""
        for reserved in self._reserved:
            reserved.close()
        os.close(self._limits_fd)

    async def run(self) -> None:
        """Serves until one of `ending_signals`, then drains all; see `stop`.

        Raises WorkerExitedError.
        """
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self.stop)
        polling = asyncio.create_task(self._poll())
        slots = [asyncio.create_task(self._keep(slot)) for slot in range(self._count)]
        try:
            await asyncio.gather(*slots)
        finally:
            polling.cancel()
            self.stop()
            await asyncio.gather(*slots, return_exceptions=True)

    def stop(self) -> None:
        """Begins the drain of all workers; called again, ends what runs on them with an error."""
        if not self._stopping.is_set():
            seconds = self._params["shutdown_timeout"] + _KILL_SECONDS
            asyncio.get_running_loop().call_later(seconds, self._signal_all, signal.SIGKILL)
        self._stopping.set()
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.signal(number)

    async def _keep(self, slot: int) -> None:
        """Has a worker run until the end."""
        replaces = False
        while not self._stopping.is_set():
            worker = await self._start(slot, replaces=replaces)
            exit_code = await worker.process.wait()
            self._totals.forget(worker.process.pid)
            self._workers[slot] = None
            if self._stopping.is_set():
                return
            if not (worker.listens or replaces):
                raise WorkerExitedError(exit_code)
            log.error("router process %d exited with code %d; starting another one",
                      worker.process.pid, exit_code)  # fmt: skip
            replaces = True
            await asyncio.sleep(_RESTART_SECONDS if worker.listens else _AGAIN_SECONDS)

    async def _start(self, slot: int, *, replaces: bool) -> _Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *_command(theirs.fileno()),
                pass_fds=(theirs.fileno(), self._limits_fd),
                # Ctrl-C reaches the parent alone, which passes it on once.
                start_new_session=True,
            )
        worker = self._workers[slot] = _Worker(process)
        worker.control = await Control.over(
            ours, on_tell=lambda notice: self._hear(worker, notice), answer=self.sum
        )
        worker.hearing = asyncio.create_task(worker.control.run())  # ends with the worker
        worker.control.tell(
            {
                "models": [str(path) for path in self._paths],
                "targets": list(self._targets),
                "ports": self.ports,
                "limits_fd": self._limits_fd,
                "replaces": replaces,
            }
        )
        if self._stopping.is_set():
            worker.signal(signal.SIGTERM)
        return worker

    def _hear(self, worker: _Worker, notice: dict[str, Any]) -> None:
        if "listening" in notice:
            worker.listens = True
            return
        target = notice["ready"]
        worker.ready.add(target)
        if all(each is not None and target in each.ready for each in self._workers):
            names = tuple(notice["info"].pop("served_names"))
            self._on_ready(target, EngineInfo(served_names=names, **notice["info"]))

    async def sum(self) -> list[Family]:
        """The metrics of all workers together, those of dead ones included."""
        await asyncio.gather(*(self._ask(worker) for worker in self._workers if worker))
        return self._totals.sum()

    async def _ask(self, worker: _Worker) -> None:
        if worker.control is None:
            return
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                families = await worker.control.ask()
        except (TimeoutError, ControlClosedError):
            return  # what it said last has to do
        if worker in self._workers:
            self._totals.update(worker.process.pid, families)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            await self.sum()


def _command(fd: int) -> list[str]:
    """This process's command line once more, as a worker's."""
    command, *arguments = sys.argv[1:]
    return [sys.executable, "-m", "router_svc", command, f"--worker-fd={fd}", *arguments]
