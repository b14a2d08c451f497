"""Each rank's GPU, and what ranks talk through."""

from __future__ import annotations

import pytest

from engine_svc.config import ConfigError
from engine_svc.parallel.placement import gpu_of_rank, group_backend


def test_each_rank_of_a_node_has_the_gpu_of_its_number() -> None:
    assert [gpu_of_rank(local_rank, 4, num_gpus=8) for local_rank in range(4)] == [0, 1, 2, 3]


def test_a_node_with_fewer_gpus_than_ranks_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"each of the 4 ranks on this node .* sees 2 "):
        gpu_of_rank(0, 4, num_gpus=2)


def test_ranks_talk_as_their_devices_can() -> None:
    assert group_backend("cpu", has_nccl=False) == "gloo"
    assert group_backend("cuda", has_nccl=True) == "nccl"
    with pytest.raises(ConfigError, match="this build of torch has no NCCL"):
        group_backend("cuda", has_nccl=False)
