"""Which rank a process is: by itself, by flags on several nodes, by torchrun's variables."""

from __future__ import annotations

import pytest

from engine_svc.config import ConfigError, ParallelConfig
from engine_svc.parallel.topology import topology_of

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node-0",
    "MASTER_PORT": "29400",
}


def test_an_engine_alone_is_rank_0_of_1() -> None:
    topology = topology_of(ParallelConfig(num_ranks=1), {})

    assert (topology.rank, topology.num_ranks, topology.num_nodes) == (0, 1, 1)


def test_the_engine_of_one_node_starts_the_others_and_meets_them_on_loopback() -> None:
    topology = topology_of(ParallelConfig(num_ranks=4), {})

    assert (topology.rank, topology.local_size) == (0, 4)
    assert topology.spawns
    assert topology.hosts_store
    assert (topology.master_addr, topology.master_port) == ("127.0.0.1", 0)


def test_the_ranks_of_a_node_follow_those_of_the_nodes_before_it() -> None:
    config = ParallelConfig(8, num_nodes=2, node_rank=1, master_addr="node-0", master_port=29500)

    first = topology_of(config, {})
    third = topology_of(ParallelConfig(8, 2, 1, "node-0", 29500, local_rank=2), {})

    assert (first.rank, first.node_rank, first.spawns, first.hosts_store) == (4, 1, True, False)
    assert (third.rank, third.node_rank, third.spawns, third.hosts_store) == (6, 1, False, False)


def test_torchrun_has_started_all_ranks_and_says_which_this_is() -> None:
    topology = topology_of(ParallelConfig(num_ranks=4), TORCHRUN)

    assert (topology.rank, topology.num_ranks, topology.num_nodes) == (3, 4, 2)
    assert (topology.local_rank, topology.spawns) == (1, False)
    assert (topology.master_addr, topology.master_port) == ("node-0", 29400)


def test_the_store_is_torchruns_where_its_agent_has_one() -> None:
    first = TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}
    with_agent = first | {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "2",
    }

    assert topology_of(ParallelConfig(num_ranks=4), first).hosts_store
    assert not topology_of(ParallelConfig(num_ranks=4), with_agent).hosts_store
    assert topology_of(ParallelConfig(num_ranks=4), with_agent).store_prefix == "octavo/2"


def test_variables_of_torchrun_mean_nothing_to_an_engine_alone_or_a_started_rank() -> None:
    assert topology_of(ParallelConfig(num_ranks=1), TORCHRUN).rank == 0
    assert topology_of(ParallelConfig(num_ranks=4, local_rank=1), TORCHRUN).rank == 1


@pytest.mark.parametrize(
    ("config", "environment", "words"),
    [
        (ParallelConfig(3, 2, 0, "a", 1), {}, "--nnodes 2 does not divide the 3 ranks"),
        (ParallelConfig(2, 2, 2, "a", 1), {}, "--node-rank 2 is not below --nnodes 2"),
        (ParallelConfig(2, 2), {}, "--nnodes 2 needs --master-addr and --master-port"),
        (ParallelConfig(2, node_rank=1), {}, "give --nnodes"),
        (ParallelConfig(1, 2, 0, "a", 1), {}, "--tensor-parallel-size above 1"),
        (ParallelConfig(2), TORCHRUN, "WORLD_SIZE is 4.*--tensor-parallel-size is 2"),
        (ParallelConfig(4), TORCHRUN | {"RANK": "one"}, "not numbers"),
        (ParallelConfig(4), TORCHRUN | {"RANK": "4"}, "do not go together"),
    ],
)
def test_places_that_cannot_be_are_refused_by_name(
    config: ParallelConfig, environment: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        topology_of(config, environment)
