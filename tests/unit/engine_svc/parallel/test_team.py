"""What ranks may take, each on a processor that it shares or on a GPU of its own."""

from __future__ import annotations

import pytest

from engine_svc.memory import AvailableMemory
from engine_svc.parallel.processes import WorkerProcesses
from engine_svc.parallel.team import Team
from engine_svc.parallel.topology import Topology
from kernels.sharding import Shard
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec

SPEC = DecoderSpec(
    vocab_size=321,
    hidden_size=96,
    intermediate_size=105,
    num_heads=6,
    num_kv_heads=3,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),),
    norm_eps=1e-5,
    max_position=64,
    attention_scale=0.25,
)
TWO_ON_A_NODE = Topology(0, 2, 0, 2, "127.0.0.1", 0, spawns=True, hosts_store=True)


class Ranks:
    """This rank and one that has `other` bytes."""

    def __init__(self, other: int) -> None:
        self._other = other

    def least(self, number: int) -> int:
        return min(number, self._other)


def _team(device: str, other: int) -> Team:
    return Team(TWO_ON_A_NODE, Shard(SPEC, 0, 2), Ranks(other), WorkerProcesses({}), device)


@pytest.mark.parametrize(
    ("device", "other", "num_bytes", "bound"),
    [
        ("cpu", 500, 500, "one of 2 equal shares of memory"),
        ("cpu", 300, 300, "the least of all nodes"),
        ("cuda", 1000, 1000, "memory"),
        ("cuda", 700, 700, "the least of all ranks' GPUs"),
    ],
)
def test_a_machine_is_shared_and_a_gpu_is_not(
    device: str, other: int, num_bytes: int, bound: str
) -> None:
    shared = _team(device, other).share(AvailableMemory(1000, "memory"))

    assert shared == AvailableMemory(num_bytes, bound)
