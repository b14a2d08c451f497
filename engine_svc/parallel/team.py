"""How a rank comes to know the others, the same on all of them.

take a device ─▶ start this node's ranks ─▶ meet ─▶ choose what computes ─▶ share memory ─▶ load
└ a GPU each?                               └ same model, flags, device?   └ the least of all
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine_svc.devices import choose_device
from engine_svc.memory import AvailableMemory
from engine_svc.parallel.processes import WorkerProcesses
from engine_svc.parallel.ranks import Ranks, listen_for_ranks, meet, take_device
from engine_svc.parallel.shared_memory import check_shared_memory, free_bytes
from engine_svc.planning.decoder import step_tokens
from engine_svc.planning.sharding import shard_of

if TYPE_CHECKING:
    from engine_svc.config import Settings
    from engine_svc.loader.opened import OpenedModel
    from engine_svc.parallel.topology import Topology
    from kernels.sharding import Shard

log = logging.getLogger(__name__)

_FATE_SECONDS = 0.5  # for the system to say how a process ended
_NOTICE_SECONDS = 1.0  # for a thread to find by itself that a rank is lost


@dataclass(frozen=True, slots=True)
class Team:
    """The ranks of an engine, met, and those of them that this process has started."""

    topology: Topology
    shard: Shard
    ranks: Ranks
    processes: WorkerProcesses
    device: str  # what the ranks compute on, "cpu" or "cuda"

    def share(self, available: AvailableMemory) -> AvailableMemory:
        """What each rank may take, where its node, or its own GPU, has `available`.

        All ranks get the same.
        """
        if self.device == "cuda":
            own, others = available, "the least of all ranks' GPUs"
        else:
            own, others = available.shared_by(self.topology.local_size), "the least of all nodes"
        least = self.ranks.least(own.num_bytes)
        return own if least == own.num_bytes else AvailableMemory(least, others)

    def hold_together(self) -> None:
        """Waits until all ranks have loaded; from then on the loss of one is never missed.

        A thread that waits for a GPU which waits for a rank would wait for ever. So the ranks tell
        each other that they live from here on, and whoever finds another gone ends its own process.
        For rank 0 that is until `Ranks.watch` is given something better.
        """
        self.ranks.wait_for_all()
        if self.ranks.rank == 0:
            self.ranks.watch(self._end)
        else:
            self.ranks.beat(lambda: self._end(0))

    def _end(self, lost: int) -> None:
        """Ends this process, unless its main thread does so first, and with better words."""
        fate = self.processes.fate(lost, _FATE_SECONDS)
        time.sleep(_NOTICE_SECONDS)
        log.critical("%s: rank %d ends", fate, self.ranks.rank)
        self.processes.kill()
        os._exit(1)

    def fate(self, error: Exception) -> str:
        """What has become of the ranks, where `error` says that one is lost; ends the others."""
        ended = self.processes.ended(_FATE_SECONDS) or str(error)
        self.processes.kill()
        return f"the engine cannot start: {ended}"

    @property
    def summary(self) -> str:
        """One line for the start-up print."""
        topology, spec, whole = self.topology, self.shard.spec, self.shard.whole
        nodes = f" on {topology.num_nodes} nodes" if topology.num_nodes > 1 else ""
        return (
            f"tensor parallel: {topology.num_ranks} ranks{nodes} over "
            f"{self.ranks.backend}; rank 0 has "
            f"{spec.num_kv_heads} of {whole.num_kv_heads} KV heads, {spec.intermediate_size:,} of "
            f"{whole.intermediate_size:,} neurons, {spec.vocab_size:,} of {whole.vocab_size:,} "
            "tokens; sizes are those of each rank"
        )


def assemble(settings: Settings, opened: OpenedModel, topology: Topology) -> Team:
    """Starts this node's other ranks where that is this process's part, and meets all.

    Raises ConfigError for what cannot be cut among the ranks, for devices that are too few, or not
    the same on all, and WorkerLostError if one does not come. Nothing is left running then.
    """
    shard = shard_of(opened.spec, topology.num_ranks, topology.rank)
    device, _ = choose_device(settings.model.device)
    backend = take_device(device, topology)
    shm_disabled = os.environ.get("NCCL_SHM_DISABLE") == "1"
    check_shared_memory(backend, topology.local_size, free_bytes(), shm_disabled=shm_disabled)
    listener = listen_for_ranks(topology)
    if listener is not None:
        topology = replace(topology, master_port=listener.getsockname()[1])
    processes = WorkerProcesses.start(settings.model.path, settings.parallel, topology)
    try:
        ranks = meet(
            topology,
            listener,
            processes,
            identity=_identity(settings, opened, device),
            backend=backend,
            step_timeout=settings.service.stall_timeout,
        )
    except BaseException:
        processes.kill()
        raise
    return Team(topology, shard, ranks, processes, device)


def _identity(settings: Settings, opened: OpenedModel, device: str) -> str:
    """What has to be the same on all ranks, in few letters for the store."""
    model, cache = settings.model, settings.cache
    # Graphs and buffers of a step have these sizes on all ranks.
    sizes = f"{settings.batch.max_num_seqs} {step_tokens(settings, opened)}"
    flags = f"{model.dtype} {model.quantization} {cache.dtype} {cache.block_size} {sizes}"
    flags += f" {model.batch_invariant} {model.enforce_eager}"
    digest = hashlib.sha256(f"{opened.weights_version} {flags} {opened.spec}".encode()).hexdigest()
    return f"{model.path.name} on {device}, {opened.format}, fingerprint {digest[:12]}"
