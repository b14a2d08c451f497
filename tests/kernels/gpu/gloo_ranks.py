"""Ranks of an interpreted decoder over real gloo, each on a thread of this process.

Triton's interpreter computes one kernel at a time. So the ranks take turns: one computes until it
waits for the other.
"""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from kernels.collectives import Group
from tests.support.picks import picks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from kernels.backend import Decoder, StepInputs, StepResult
    from kernels.collectives import Collectives

_PATIENCE = timedelta(seconds=60)


class _InTurns:
    """A rank that lets others compute while it waits for them. Implements `Collectives`."""

    def __init__(self, group: Group, turn: threading.Lock) -> None:
        self._group = group
        self._turn = turn
        self.rank = group.rank
        self.size = group.size

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        self._turn.release()
        try:
            return self._group.sum(x)
        finally:
            self._turn.acquire()

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor | None:
        self._turn.release()
        try:
            return self._group.gather(x, widths)
        finally:
            self._turn.acquire()

    def share(self, x: torch.Tensor) -> None:
        self._turn.release()
        try:
            self._group.share(x)
        finally:
            self._turn.acquire()


class GlooRanks:
    """Decoders of all ranks as one. Implements `Decoder`; `results` are all ranks' of a step."""

    def __init__(self, size: int, load: Callable[[Collectives], Decoder]) -> None:
        self._turn = threading.Lock()
        self._pool = ThreadPoolExecutor(size)
        store = dist.HashStore()

        def join(rank: int) -> Decoder:
            gloo = dist.ProcessGroupGloo(store, rank, size, _PATIENCE)
            group = dist.ProcessGroup(store, rank, size)
            kind = dist.ProcessGroup.BackendType.GLOO
            group._register_backend(torch.device("cpu"), kind, gloo)
            with self._turn:
                return load(_InTurns(Group(group), self._turn))

        self.decoders = list(self._pool.map(join, range(size)))
        self.results: list[StepResult] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    @property
    def weight_bytes(self) -> int:
        """Bytes of all ranks' weights."""
        return sum(decoder.weight_bytes for decoder in self.decoders)

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes all pools."""
        for decoder in self.decoders:
            decoder.allocate_kv(num_blocks, block_size)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """What computes on a rank by itself."""
        with self._turn:
            yield

    def step(self, inputs: StepInputs) -> StepResult:
        """Computes one step on all ranks; the result is that of rank 0."""
        picks = picks_of(inputs.picks.rows.tolist())
        others = dataclasses.replace(inputs, picks=picks, hidden_rows=None)

        def take_part(decoder: Decoder, own: StepInputs) -> StepResult:
            with self._turn:
                return decoder.step(own)

        each = [inputs, *[others] * (len(self.decoders) - 1)]
        self.results = list(self._pool.map(take_part, self.decoders, each))
        return self.results[0]
