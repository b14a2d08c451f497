"""How kernels are cut into programs on each architecture: looked up, never tuned while serving.

A table that is checked in keeps start-up short, and a row's bits the same from start to start: tile
sizes are part of the arithmetic. That is why nothing here depends on the batch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

HEADS_PER_PROGRAM = 16  # of `qk_norm_rope_cache_write`
SHARED_PROGRAMS = 1024  # of `paged_attention` in decoding: a few for each multiprocessor
FOLDED_AT_A_TIME = 8  # splits that a row's partial sums are fetched by


@dataclass(frozen=True, slots=True)
class AttentionLaunch:
    """Of `paged_attention`. All but the stages decide on bits."""

    rows: int  # of a tile of queries: positions · query heads that share a key-value head
    keys: int  # of a tile of keys
    num_warps: int
    num_stages: int
    split: int = 256  # keys that are summed up by themselves; a multiple of `keys`
    fp8_hardware: bool = True  # whether the device converts e4m3 by an instruction


# Interpreted on a CPU: small, so that small tests have several of everything.
INTERPRETED = AttentionLaunch(16, 32, num_warps=1, num_stages=1, split=64, fp8_hardware=False)

# (least capability, largest head_dim, launch); the first that fits is taken. 64 rows are what one
# instruction of Hopper and Blackwell multiplies: decoding fills a few of them, and is bound by
# memory still, at 64 operations a byte. Sizes are the largest that spill no registers.
_ATTENTION = (
    (100, 64, AttentionLaunch(64, 64, num_warps=4, num_stages=2)),
    (100, 128, AttentionLaunch(64, 64, num_warps=8, num_stages=2)),
    (100, 256, AttentionLaunch(64, 32, num_warps=8, num_stages=2)),
    (90, 64, AttentionLaunch(64, 64, num_warps=4, num_stages=3)),
    (90, 128, AttentionLaunch(64, 64, num_warps=4, num_stages=2)),
    (90, 256, AttentionLaunch(64, 32, num_warps=8, num_stages=3)),
    (89, 128, AttentionLaunch(64, 32, num_warps=8, num_stages=2)),
    (89, 256, AttentionLaunch(32, 32, num_warps=8, num_stages=2)),
    (80, 128, AttentionLaunch(64, 32, num_warps=8, num_stages=2, fp8_hardware=False)),
    (80, 256, AttentionLaunch(32, 32, num_warps=8, num_stages=3, fp8_hardware=False)),
)


@functools.cache
def attention_launch(device: torch.device, head_dim: int) -> AttentionLaunch:
    """The row of the table for a device. Raises ValueError for heads that no row has."""
    if device.type == "cpu":
        return INTERPRETED
    major, minor = torch.cuda.get_device_capability(device)
    return attention_launch_of(10 * major + minor, head_dim)


def attention_launch_of(capability: int, head_dim: int) -> AttentionLaunch:
    """The row of the table for a compute capability, such as 90."""
    for least, largest_head, launch in _ATTENTION:
        if capability >= least and head_dim <= largest_head:
            return launch
    raise ValueError(f"no launch for heads of {head_dim} at compute capability {capability}")
