"""What one rank of several holds, in the words of the flag that asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine_svc.config import ConfigError
from kernels.sharding import Shard, ShardedWeights

if TYPE_CHECKING:
    from engine_svc.loader.opened import OpenedModel
    from kernels.spec import DecoderSpec

_FLAG = "--tensor-parallel-size"


def shard_of(spec: DecoderSpec, num_ranks: int, rank: int = 0) -> Shard:
    """The part of `spec` that a rank holds; rank 0's is the largest.

    Raises ConfigError for a cut that would go through a head.
    """
    try:
        return Shard(spec, rank, num_ranks)
    except ValueError as error:
        raise ConfigError(f"{_FLAG} {num_ranks}: {error}") from error


def part_of(opened: OpenedModel, shard: Shard) -> OpenedModel:
    """A model as a rank has it; one rank alone has it as its files do, codes and all."""
    if shard.num_ranks == 1:
        return opened
    return replace(opened, spec=shard.spec, source=ShardedWeights(opened.source, shard))


def sharding_notices(spec: DecoderSpec, num_ranks: int) -> tuple[str, ...]:
    """What to know of the cut of `spec`."""
    if num_ranks == 1:
        return ()
    notices = [f"sizes are of one of {num_ranks} ranks"]
    if spec.num_kv_heads % num_ranks:
        most = len(shard_of(spec, num_ranks).kv_heads)
        notices.append(
            f"{spec.num_kv_heads} KV heads do not divide among {num_ranks} ranks: some have {most} "
            f"of them, some {most - 1}, and sizes are of those that have {most}"
        )
    return tuple(notices)
