"""How a rank comes to know the others, the same on all of them.

start this node's ranks ─▶ meet ─▶ choose what computes ─▶ share memory ─▶ load
                           └ same model and flags?         └ the least of what all have free
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine_svc.memory import AvailableMemory
from engine_svc.parallel.processes import WorkerProcesses
from engine_svc.parallel.ranks import Ranks, listen_for_ranks, meet
from engine_svc.parallel.shared_memory import check_shared_memory, free_bytes
from engine_svc.planning.sharding import shard_of

if TYPE_CHECKING:
    from engine_svc.config import Settings
    from engine_svc.loader.opened import OpenedModel
    from engine_svc.parallel.topology import Topology
    from kernels.sharding import Shard

_BACKEND = "gloo"  # of sums and gathers; NCCL where a decoder computes on GPUs
_FATE_SECONDS = 0.5  # for the system to say how a process ended


@dataclass(frozen=True, slots=True)
class Team:
    """The ranks of an engine, met, and those of them that this process has started."""

    topology: Topology
    shard: Shard
    ranks: Ranks
    processes: WorkerProcesses

    def share(self, available: AvailableMemory) -> AvailableMemory:
        """What each rank may take, where a node has `available`. All ranks get the same."""
        own = available.shared_by(self.topology.local_size)
        least = self.ranks.least(own.num_bytes)
        return own if least == own.num_bytes else AvailableMemory(least, "the least of all nodes")

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
            f"tensor parallel: {topology.num_ranks} ranks{nodes} over {_BACKEND}; rank 0 has "
            f"{spec.num_kv_heads} of {whole.num_kv_heads} KV heads, {spec.intermediate_size:,} of "
            f"{whole.intermediate_size:,} neurons, {spec.vocab_size:,} of {whole.vocab_size:,} "
            "tokens; sizes are those of each rank"
        )


def assemble(settings: Settings, opened: OpenedModel, topology: Topology) -> Team:
    """Starts this node's other ranks where that is this process's part, and meets all.

    Raises ConfigError for what cannot be cut among the ranks, or is not the same on all, and
    WorkerLostError if one does not come. Nothing is left running then.
    """
    shard = shard_of(opened.spec, topology.num_ranks, topology.rank)
    check_shared_memory(_BACKEND, topology.local_size, free_bytes())
    listener = listen_for_ranks(topology)
    if listener is not None:
        topology = replace(topology, master_port=listener.getsockname()[1])
    processes = WorkerProcesses.start(settings.model.path, settings.parallel, topology)
    try:
        ranks = meet(
            topology,
            listener,
            processes,
            identity=_identity(settings, opened),
            backend=_BACKEND,
            step_timeout=settings.service.stall_timeout,
        )
    except BaseException:
        processes.kill()
        raise
    return Team(topology, shard, ranks, processes)


def _identity(settings: Settings, opened: OpenedModel) -> str:
    """What has to be the same on all ranks, in few letters for the store."""
    model, cache = settings.model, settings.cache
    flags = f"{model.dtype} {model.quantization} {cache.dtype} {cache.block_size}"
    digest = hashlib.sha256(f"{opened.weights_version} {flags} {opened.spec}".encode()).hexdigest()
    return f"{model.path.name}, {opened.format}, fingerprint {digest[:12]}"
