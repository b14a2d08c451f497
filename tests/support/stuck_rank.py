"""A rank that has loaded and then waits for ever, as one does for a GPU that waits for another's.

python -m tests.support.stuck_rank RANK NUM_RANKS PORT
"""

from __future__ import annotations

import sys
import time

from engine_svc.parallel.processes import WorkerProcesses
from engine_svc.parallel.ranks import listen_for_ranks, meet
from engine_svc.parallel.team import Team
from engine_svc.parallel.topology import LOOPBACK, Topology
from kernels.sharding import Shard
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec

SPEC = DecoderSpec(
    vocab_size=64,
    hidden_size=64,
    intermediate_size=64,
    num_heads=4,
    num_kv_heads=4,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),),
    norm_eps=1e-5,
    max_position=64,
    attention_scale=0.25,
)


def main() -> None:
    """Meets the others, says so, and waits."""
    rank, size, port = map(int, sys.argv[1:])
    place = Topology(rank, size, rank, size, LOOPBACK, port, spawns=False, hosts_store=rank == 0)
    started = WorkerProcesses({})
    ranks = meet(
        place, listen_for_ranks(place), started, identity="same", backend="gloo", step_timeout=600
    )
    Team(place, Shard(SPEC, rank, size), ranks, started, "cpu").hold_together()
    print("together", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
