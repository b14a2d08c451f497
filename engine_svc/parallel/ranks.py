"""The ranks of an engine as one of them has them: how they meet, and what they say outside a step.

    store    where they meet: a TCP store of torch.distributed at rank 0, on loopback for one node
    plan     gloo; steps from rank 0, for which the others may wait for days
    steps    gloo on CPUs, NCCL on GPUs; sums and gathers within a step
    alive    gloo; the others tell rank 0 once a second that they are there

A process that dies closes its connections, which ends every call of gloo that waits for it at once.
One that hangs, or whose node is cut off, is found by its silence. A call of NCCL only queues work:
what waits for a lost rank then is a GPU, and whoever waits for that GPU. It is the thread that
listens, or that beats, that sees the loss; what it calls must not wait for the one that computes.

Nothing here is authenticated, as nothing of torch.distributed is: several nodes need a network of
their own (docs/parallel.md).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from engine_svc.config import ConfigError
from engine_svc.parallel.placement import gpu_of_rank, group_backend
from engine_svc.parallel.topology import LOOPBACK
from engine_svc.worker.executor import WorkerLostError
from kernels.collectives import Group

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_svc.parallel.processes import WorkerProcesses
    from engine_svc.parallel.topology import Topology
    from kernels.backend import Int32s

MEETING_SECONDS = 600.0  # for all nodes to come up
BEAT_SECONDS = 1.0
SILENCE_SECONDS = 10.0  # after which a rank counts as lost
_IDLE = timedelta(days=3650)
_POLL_SECONDS = 0.05
_RESOLVE_SECONDS = 1.0
# What torch does about a call of NCCL that fails or lasts for longer than its group's timeout: ends
# the process (SkipCleanUp in its ProcessGroupNCCL.hpp). It does not see into graphs.
_NCCL_ERRORS = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3")


class Ranks:
    """The process groups of one rank. Calls that others take part in raise WorkerLostError."""

    def __init__(self, rank: int, size: int, backend: str, step_timeout: float) -> None:
        """The default group of torch.distributed exists; `backend` is that of `steps`.

        With "nccl" this thread's current GPU is the rank's.
        """
        self.rank = rank
        self.size = size
        self.backend = backend
        self._on_lost: Callable[[int], object] | None = None
        if backend == "nccl":
            os.environ.setdefault(*_NCCL_ERRORS)
        every = list(range(size))
        self._plan = dist.new_group(every, timeout=_IDLE, backend="gloo")
        self._alive = dist.new_group(
            every, timeout=timedelta(seconds=SILENCE_SECONDS), backend="gloo"
        )
        steps = dist.new_group(every, timeout=timedelta(seconds=step_timeout), backend=backend)
        self.collectives = Group(steps)
        if backend == "nccl":  # before free memory is measured: its buffers count, too
            self.collectives.connect(torch.device("cuda", torch.cuda.current_device()))
        self._leaving = threading.Event()

    def tell(self, numbers: Int32s) -> None:
        """Rank 0 gives all others an array, whose length they know. Does not wait for them."""
        self._broadcast(torch.from_numpy(numbers))

    def hear(self, count: int) -> Int32s:
        """What rank 0 tells next, `count` numbers; waits for it however long it takes."""
        numbers = np.empty(count, dtype=np.int32)
        self._broadcast(torch.from_numpy(numbers))
        return numbers

    def least(self, number: int) -> int:
        """The least of what all ranks give."""
        found = torch.tensor([number], dtype=torch.int64)
        try:
            dist.all_reduce(found, dist.ReduceOp.MIN, group=self._plan)
        except RuntimeError as error:
            raise WorkerLostError(str(error)) from error
        return int(found.item())

    def wait_for_all(self) -> None:
        """Waits until all ranks have come to this call."""
        self.least(0)

    def watch(self, on_lost: Callable[[int], object]) -> None:
        """Has rank 0 listen for all others; `on_lost` gets the rank, on a thread of its own.

        Called again, what is lost from then on goes to the new one.
        """
        listens, self._on_lost = self._on_lost is not None, on_lost
        for rank in () if listens else range(1, self.size):
            threading.Thread(
                target=self._listen, args=(rank,), name=f"rank-{rank}", daemon=True
            ).start()

    def beat(self, on_lost: Callable[[], object]) -> None:
        """Has another rank tell rank 0 that it is there, on a thread, until it ends.

        `on_lost` is called there once rank 0 is gone, within two beats.
        """
        threading.Thread(target=self._beat, args=(on_lost,), name="beat", daemon=True).start()

    def leave(self) -> None:
        """What is lost from now on is meant to be."""
        self._leaving.set()

    def close(self) -> None:
        """Drops the groups, once all others have ended.

        NCCL's end with the process: to be destroyed they would wait for every graph that has calls
        of theirs to be gone, and for the other ranks.
        """
        if self.backend != "nccl":
            dist.destroy_process_group()

    def _broadcast(self, numbers: torch.Tensor) -> None:
        try:
            dist.broadcast(numbers, 0, group=self._plan)
        except RuntimeError as error:
            raise WorkerLostError(str(error)) from error

    def _listen(self, rank: int) -> None:
        beat = torch.zeros(1)
        try:
            while not self._leaving.is_set():
                dist.recv(beat, src=rank, group=self._alive)
        except RuntimeError:
            if not self._leaving.is_set() and self._on_lost is not None:
                self._on_lost(rank)

    def _beat(self, on_lost: Callable[[], object]) -> None:
        beat = torch.zeros(1)
        try:
            while not self._leaving.wait(BEAT_SECONDS):
                dist.send(beat, dst=0, group=self._alive)
        except RuntimeError:
            if not self._leaving.is_set():
                on_lost()


def take_device(device: str, topology: Topology) -> str:
    """Makes a rank's GPU the current one where ranks compute on "cuda"; returns their back end.

    It is so on this thread; of all others it stays the first, which is that of rank 0, the only one
    to compute on another thread. Raises ConfigError for too few GPUs, or without NCCL.
    """
    backend = group_backend(device, has_nccl=dist.is_nccl_available())
    if device == "cuda":
        num_gpus = torch.cuda.device_count()
        torch.cuda.set_device(gpu_of_rank(topology.local_rank, topology.local_size, num_gpus))
    return backend


def listen_for_ranks(topology: Topology) -> socket.socket | None:
    """The socket of the store, where this process has it. Raises ConfigError if it is taken."""
    if not topology.hosts_store:
        return None
    try:
        if topology.num_nodes == 1:
            return socket.create_server((LOOPBACK, topology.master_port))
        if socket.has_dualstack_ipv6():
            every = ("", topology.master_port)
            return socket.create_server(every, family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", topology.master_port))
    except OSError as error:
        raise ConfigError(f"--master-port {topology.master_port}: {error.strerror}") from error


def meet(
    topology: Topology,
    listener: socket.socket | None,
    processes: WorkerProcesses,
    *,
    identity: str,
    backend: str,
    step_timeout: float,
    meeting_seconds: float = MEETING_SECONDS,
) -> Ranks:
    """Waits until all ranks are there, and makes their groups. `identity` must be the same on all.

    `backend`, gloo or nccl, carries what ranks say within a step; one may take `step_timeout`
    seconds.

    Raises WorkerLostError if one ends before or does not come within `meeting_seconds`, and
    ConfigError if they have different models or flags.
    """
    deadline = time.monotonic() + meeting_seconds
    _choose_interface(topology, deadline)
    patience = timedelta(seconds=meeting_seconds)
    where = f"{topology.master_addr}:{topology.master_port}"
    try:
        if listener is None:
            tcp = TCPStore(topology.master_addr, topology.master_port, timeout=patience)
        else:
            tcp = TCPStore(
                topology.master_addr,
                listener.getsockname()[1],
                is_master=True,
                timeout=patience,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),  # the store closes it
            )
        store = PrefixStore(topology.store_prefix, tcp)
        store.set(f"rank/{topology.rank}", identity)
        for rank in range(topology.num_ranks):
            _await(store, rank, processes, deadline)
            if (other := store.get(f"rank/{rank}").decode()) != identity:
                raise ConfigError(
                    f"rank {rank} has {other}, but rank {topology.rank} has {identity}: every node "
                    "needs the same model and flags"
                )
        dist.init_process_group(
            "gloo",
            store=store,
            rank=topology.rank,
            world_size=topology.num_ranks,
            timeout=patience,
        )
        return Ranks(topology.rank, topology.num_ranks, backend, step_timeout)
    except (RuntimeError, dist.DistError) as error:
        raise WorkerLostError(f"the ranks did not meet at {where}: {error}") from error


def _await(store: Store, rank: int, processes: WorkerProcesses, deadline: float) -> None:
    while not store.check([f"rank/{rank}"]):
        if (ended := processes.ended()) is not None:
            raise WorkerLostError(f"{ended} before all ranks had met")
        if time.monotonic() > deadline:
            raise WorkerLostError(f"rank {rank} did not come within the time to meet")
        time.sleep(_POLL_SECONDS)


def _choose_interface(topology: Topology, deadline: float) -> None:
    """Has gloo and NCCL use loopback on one node, and on several the way that leads to node 0.

    By themselves they take what the host's name resolves to, on many systems a loopback address
    that no other node can reach. A choice in the environment stands.
    """
    if topology.num_nodes == 1:
        name = _interface_of(LOOPBACK)
    else:
        family, address = _resolved(topology.master_addr, topology.master_port, deadline)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            name = _interface_of(probe.getsockname()[0])
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def _interface_of(address: str) -> str | None:
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return name
    return None


def _resolved(host: str, port: int, deadline: float) -> tuple[socket.AddressFamily, Any]:
    """The address of node 0, which the cluster's names may know only once its pod has started."""
    while True:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except socket.gaierror as error:
            if time.monotonic() > deadline:
                raise ConfigError(f"--master-addr {host}: {error.strerror}") from error
            time.sleep(_RESOLVE_SECONDS)
        else:
            return found[0][0], found[0][4]
