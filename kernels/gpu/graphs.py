"""Captured CUDA graphs of a decode step's layers: one launch where there were hundreds.

Decode steps are padded to the next of some sizes, close to each other where padding would cost
most. A graph reads the step's buffers, which stay where they are, and leaves its hidden rows where
the next replay of any graph will write: all share one pool of memory.

Of several ranks a graph has the rank's part of every sum among its kernels. All ranks therefore
capture the same sizes in the same order, and replay the same one in each step: sizes follow from
max_num_seqs, which is the same on all of them, and what is replayed from the step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.backend import PickInputs, StepInputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernels.gpu.step_buffers import DeviceBatch, StepBuffers

_LARGEST = 512


def graph_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """Numbers of requests that have a graph, ascending; the last is max_num_seqs or 512."""
    last = min(max_num_seqs, _LARGEST)
    sizes = {1, 2, 4, *range(8, 257, 8), *range(272, _LARGEST + 1, 16), last}
    return tuple(sorted(size for size in sizes if size <= last))


class DecodeGraphs:
    """Graphs by size. A decoder without them has no sizes, and its steps launch kernel by kernel.

    `sizes` ascend; `layers` computes hidden rows of a batch.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        layers: Callable[[DeviceBatch], torch.Tensor],
    ) -> None:
        self._sizes = sizes
        self._layers = layers
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}

    def size_for(self, num_requests: int) -> int | None:
        """The least captured size that holds so many requests, or None."""
        return next((size for size in self._sizes if size >= num_requests), None)

    def capture(self, buffers: StepBuffers, max_seq_len: int) -> None:
        """Captures all sizes, the largest first so that the others fit into its memory."""
        pool = None
        for size in reversed(self._sizes):
            batch = buffers.upload(idle_step(size), size, size)
            # Launched for the longest context; programs beyond a request's own end at once.
            batch = replace(batch, max_seq_len=max_seq_len)
            self._layers(batch)  # compiles what is not compiled yet, which a capture must not
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            # Only this thread's calls are held to what a capture allows: NCCL's own thread asks the
            # device how far its work is at any time.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                hidden = self._layers(batch)
            pool = graph.pool()
            self._graphs[size] = (graph, hidden)

    def replay(self, size: int) -> torch.Tensor:
        """Hidden rows [size, hidden] of the batch that was uploaded with this size."""
        graph, hidden = self._graphs[size]
        graph.replay()
        return hidden


def idle_step(num_requests: int, tokens_each: int = 1) -> StepInputs:
    """A step of so many requests that write nothing and see block 0."""
    starts = np.arange(num_requests + 1, dtype=np.int32) * tokens_each
    rows, requests = np.zeros(starts[-1], np.int32), np.zeros(num_requests, np.int32)
    return StepInputs(
        token_ids=rows,
        positions=rows,
        slot_mapping=rows - 1,
        query_start_loc=starts,
        seq_lens=requests + tokens_each,
        block_tables=requests[:, None],
        picks=_no_picks(),
        logits_rows=rows[:0],
        picked=rows - 1,  # so that a replay can have tokens of the step before
    )


def _no_picks() -> PickInputs:
    whole, real = np.empty(0, np.int32), np.empty(0)
    return PickInputs(whole, real, whole, real, real, real)
