"""How long work takes on the device, without what it takes to launch it.

The calls are captured in one CUDA graph and replayed, so that the host's part does not count.
Callers give several calls over different memory where one's would stay in the cache: what serving
reads comes from memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

_LEAST_SECONDS = 0.02  # of a measurement
_ROUNDS = 7


def seconds_of(calls: Sequence[Callable[[], object]], device: torch.device) -> float:
    """The median time of one of the calls, in seconds."""
    if device.type == "cpu":
        start = time.perf_counter()
        calls[0]()
        return time.perf_counter() - start
    for call in calls:
        call()  # compiles
    torch.cuda.synchronize(device)
    replay = _replay(calls)
    once = _elapsed(replay, 1)
    repeats = max(1, round(_LEAST_SECONDS / max(once, 1e-7)))
    rounds = [_elapsed(replay, repeats) for _ in range(_ROUNDS)]
    return statistics.median(rounds) / repeats / len(calls)


def copies_beyond_cache(num_bytes: int, cache_bytes: int) -> int:
    """How many sets of some memory to go through, so that none is in the cache when it is used."""
    return max(1, min(64, -(-4 * cache_bytes // max(num_bytes, 1))))


def _replay(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """All calls in one launch; one by one if a call cannot be captured, as it waits.

    A capture that fails leaves torch in the middle of it: `Device.is_usable` sees that.
    """

    def one_by_one() -> None:
        for call in calls:
            call()

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            one_by_one()
    except RuntimeError:
        torch.cuda.synchronize()
        return one_by_one
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def _elapsed(work: Callable[[], object], repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3
