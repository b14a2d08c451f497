"""The further ranks of a node as child processes, of the same command with a rank of its own.

They end with this process whatever becomes of it: the kernel kills them when it ends, and so does
the loss of their connections. Their output goes where this process's goes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from octavo.flags import without_process_variables

if TYPE_CHECKING:
    from pathlib import Path

    from engine_svc.config import ParallelConfig
    from engine_svc.parallel.topology import Topology

_POLL_SECONDS = 0.02


class WorkerProcesses:
    """Children by rank."""

    def __init__(self, children: dict[int, subprocess.Popen[bytes]]) -> None:
        self._children = children

    @classmethod
    def start(cls, model: Path, config: ParallelConfig, topology: Topology) -> WorkerProcesses:
        """Starts all other ranks of this node. To be called on the thread that lives longest."""
        if not topology.spawns:
            return cls({})
        children = {
            topology.rank - topology.local_rank + local_rank: subprocess.Popen(
                [
                    *(sys.executable, "-m", "engine_svc", str(model)),
                    *config.worker_args,
                    f"--nnodes={topology.num_nodes}",
                    f"--node-rank={topology.node_rank}",
                    f"--master-port={topology.master_port}",
                    *([f"--master-addr={topology.master_addr}"] if topology.num_nodes > 1 else []),
                    f"--local-rank={local_rank}",
                    f"--exit-with-parent={os.getpid()}",
                ],
                stdin=subprocess.DEVNULL,
                env=without_process_variables(os.environ),
            )
            for local_rank in range(1, topology.local_size)
        }
        return cls(children)

    def ended(self, patience: float = 0.0) -> str | None:
        """Which child ends within `patience` seconds and how, for people; None if none does."""
        deadline = time.monotonic() + patience
        while True:
            for rank, child in self._children.items():
                if child.poll() is not None:
                    return self._describe(rank, child)
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_SECONDS)

    def fate(self, rank: int, patience: float) -> str:
        """What became of a rank that is lost, which may take the system `patience` seconds."""
        child = self._children.get(rank)
        if child is None:
            return f"rank {rank}, another process or on another node, is gone or silent"
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
        return self._describe(rank, child)

    def wait(self, seconds: float) -> bool:
        """Whether all have ended by themselves within so many seconds."""
        deadline = time.monotonic() + seconds
        while any(child.poll() is None for child in self._children.values()):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def kill(self) -> None:
        """Ends what is left, and waits for it."""
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()

    def _describe(self, rank: int, child: subprocess.Popen[bytes]) -> str:
        who = f"rank {rank} (process {child.pid})"
        code = child.poll()
        if code is None:
            return f"{who} is silent"
        if code < 0:
            return f"{who} was killed by {signal.Signals(-code).name}"
        return f"{who} has ended with exit code {code}"
