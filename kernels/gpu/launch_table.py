"""How kernels are cut into programs on each architecture: looked up, never tuned while serving.

A table that is checked in keeps start-up short, and a row's bits the same from start to start: tile
sizes are part of the arithmetic. Sizes in a row of the table must not depend on the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADS_PER_PROGRAM = 16  # of `qk_norm_rope_cache_write`


@dataclass(frozen=True, slots=True)
class AttentionLaunch:
    """Of `paged_attention`. All but warps and stages decide on bits."""

    rows: int  # of a tile of queries: positions · query heads that share a key-value head
    keys: int  # of a tile of keys
    split: int  # keys that are summed up by themselves; a multiple of `keys`
    num_warps: int
    num_stages: int
    fp8_hardware: bool = True  # whether the device converts e4m3 by an instruction


# Interpreted on a CPU: small, so that small tests have several of everything.
INTERPRETED = AttentionLaunch(16, 32, 64, num_warps=1, num_stages=1, fp8_hardware=False)
