"""Which device each rank has, and what the ranks talk through on such devices."""

from __future__ import annotations

from engine_svc.config import ConfigError

_FLAG = "--tensor-parallel-size"


def gpu_of_rank(local_rank: int, local_size: int, num_gpus: int) -> int:
    """Which of a node's GPUs is that of one of its ranks.

    Raises ConfigError, with both numbers, where they are too few.
    """
    if num_gpus < local_size:
        raise ConfigError(
            f"{_FLAG}: each of the {local_size} ranks on this node needs a GPU of its own, but "
            f"this process sees {num_gpus} (see CUDA_VISIBLE_DEVICES); take fewer ranks, more "
            "nodes, or --device cpu"
        )
    return local_rank


def group_backend(device: str, *, has_nccl: bool) -> str:
    """What ranks that compute on "cpu" or "cuda" add up and gather through: "gloo" or "nccl".

    Raises ConfigError where torch was built without NCCL, which GPUs need.
    """
    if device == "cuda" and not has_nccl:
        raise ConfigError(f"{_FLAG}: this build of torch has no NCCL, through which GPUs talk")
    return "nccl" if device == "cuda" else "gloo"
