"""Which rank this process is, of how many, on which node, and where they meet.

one node        the engine is rank 0 and starts the others
several nodes   `--nnodes`, `--node-rank`, `--master-addr`: one process a node, the same command
                on all; each starts the node's other ranks, and that of node 0 is the engine
torchrun        starts every rank itself and says in RANK, WORLD_SIZE, … which it is
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_svc.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_svc.config import ParallelConfig

LOOPBACK = "127.0.0.1"
# What torchrun sets for each process that it starts (torch.distributed.elastic).
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
_ATTEMPT = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True, slots=True)
class Topology:
    """Where a process stands among the ranks of an engine."""

    rank: int
    num_ranks: int
    local_rank: int
    local_size: int  # ranks on this node, which share its memory and cores
    master_addr: str
    master_port: int  # 0: rank 0 takes a free one
    spawns: bool  # whether this process starts the other ranks of its node
    hosts_store: bool  # whether this process is where the ranks meet
    store_prefix: str = "octavo"

    @property
    def num_nodes(self) -> int:
        """Nodes, all with the same number of ranks."""
        return self.num_ranks // self.local_size

    @property
    def node_rank(self) -> int:
        """This node's number."""
        return self.rank // self.local_size


def topology_of(config: ParallelConfig, environment: Mapping[str, str]) -> Topology:
    """The place that flags, or torchrun in its variables, give this process. Raises ConfigError."""
    given = [name for name in _TORCHRUN if name in environment]
    if config.num_ranks > 1 and config.local_rank is None and len(given) == len(_TORCHRUN):
        return _from_torchrun(config.num_ranks, environment)
    if config.num_nodes == 1:
        _refuse_alone(config)
        addr, port = LOOPBACK, config.master_port or 0
    else:
        addr, port = _checked_master(config)
    if config.num_ranks % config.num_nodes:
        raise ConfigError(
            f"--nnodes {config.num_nodes} does not divide the {config.num_ranks} ranks of "
            "--tensor-parallel-size: every node runs as many"
        )
    if config.node_rank >= config.num_nodes:
        raise ConfigError(
            f"--node-rank {config.node_rank} is not below --nnodes {config.num_nodes}: nodes are "
            "counted from 0"
        )
    local_size = config.num_ranks // config.num_nodes
    local_rank = config.local_rank or 0
    rank = config.node_rank * local_size + local_rank
    return Topology(
        rank=rank,
        num_ranks=config.num_ranks,
        local_rank=local_rank,
        local_size=local_size,
        master_addr=addr,
        master_port=port,
        spawns=local_rank == 0,
        hosts_store=rank == 0,
    )


def _refuse_alone(config: ParallelConfig) -> None:
    if config.node_rank or config.master_addr is not None:
        raise ConfigError("--node-rank and --master-addr are for several nodes: give --nnodes")


def _checked_master(config: ParallelConfig) -> tuple[str, int]:
    if config.num_ranks == 1:
        raise ConfigError(
            f"--nnodes {config.num_nodes} is for --tensor-parallel-size above 1, whose ranks are "
            "on the nodes; engines that each hold the whole model need nothing of each other"
        )
    if config.master_addr is None or config.master_port is None:
        raise ConfigError(
            f"--nnodes {config.num_nodes} needs --master-addr and --master-port: where on node 0 "
            "the ranks meet"
        )
    return config.master_addr, config.master_port


def _from_torchrun(num_ranks: int, environment: Mapping[str, str]) -> Topology:
    try:
        rank, world, local_rank, local_size, port = (
            int(environment[name])
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
        )
    except ValueError as error:
        raise ConfigError(f"torchrun's variables are not numbers: {error}") from error
    if world != num_ranks:
        raise ConfigError(
            f"WORLD_SIZE is {world}: torchrun started {world} ranks, but --tensor-parallel-size is "
            f"{num_ranks}"
        )
    if not (0 <= rank < world and 0 <= local_rank < local_size) or world % local_size:
        raise ConfigError(
            f"RANK {rank} of WORLD_SIZE {world} and LOCAL_RANK {local_rank} of LOCAL_WORLD_SIZE "
            f"{local_size} do not go together"
        )
    return Topology(
        rank=rank,
        num_ranks=world,
        local_rank=local_rank,
        local_size=local_size,
        master_addr=environment["MASTER_ADDR"],
        master_port=port,
        spawns=False,
        hosts_store=rank == 0 and environment.get(_AGENT_STORE) != str(True),
        store_prefix=f"octavo/{environment.get(_ATTEMPT, '0')}",
    )
