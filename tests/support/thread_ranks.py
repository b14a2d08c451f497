"""Several ranks of one decoder in one process: each on a thread, adding up what they lay out."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from kernels.collectives import in_order
from tests.support.picks import picks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernels.backend import Decoder, PackedAdapter, StepInputs, StepResult
    from kernels.collectives import Collectives
    from kernels.lora import LoraAdapter


class _Table:
    """Where the ranks lay out tensors for each other."""

    def __init__(self, size: int) -> None:
        self._tensors: list[torch.Tensor] = [torch.empty(0)] * size
        self._barrier = threading.Barrier(size, timeout=60)

    def exchange(self, rank: int, x: torch.Tensor) -> list[torch.Tensor]:
        """All ranks' tensors, in their order."""
        self._tensors[rank] = x
        self._barrier.wait()
        found = list(self._tensors)
        self._barrier.wait()
        return found


class ThreadCollectives:
    """One rank. Implements `Collectives`."""

    def __init__(self, rank: int, size: int, table: _Table) -> None:
        self.rank = rank
        self.size = size
        self._table = table

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """As `Collectives`."""
        return in_order(self._table.exchange(self.rank, x.clone()))

    def gather(self, x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor | None:
        """As `Collectives`."""
        parts = self._table.exchange(self.rank, x.clone())
        assert [part.shape[1] for part in parts] == list(widths)
        return torch.cat(parts, 1) if self.rank == 0 else None

    def share(self, x: torch.Tensor) -> None:
        """As `Collectives`."""
        x.copy_(self._table.exchange(self.rank, x.clone())[0])


@dataclasses.dataclass(frozen=True)
class _PackedByAll:
    """What each rank has packed of an adapter."""

    parts: list[PackedAdapter]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


class ThreadRanks:
    """Decoders of all ranks as one. Implements `Decoder`."""

    def __init__(self, size: int, load: Callable[[Collectives], Decoder]) -> None:
        table = _Table(size)
        self._pool = ThreadPoolExecutor(size)
        ranks = [ThreadCollectives(rank, size, table) for rank in range(size)]
        self.decoders = list(self._pool.map(load, ranks))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all ranks' weights."""
        return sum(decoder.weight_bytes for decoder in self.decoders)

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes all pools."""
        for decoder in self.decoders:
            decoder.allocate_kv(num_blocks, block_size)

    def pack_adapter(self, adapter: LoraAdapter) -> _PackedByAll:
        """Each rank's part of an adapter."""
        return _PackedByAll([decoder.pack_adapter(adapter) for decoder in self.decoders])

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Puts what `pack_adapter` gave into a slot of every rank, or empties it."""
        assert adapter is None or isinstance(adapter, _PackedByAll)
        for rank, decoder in enumerate(self.decoders):
            decoder.set_adapter(slot, None if adapter is None else adapter.parts[rank])

    def step(self, inputs: StepInputs) -> StepResult:
        """Computes one step on all ranks; the result is that of rank 0."""
        picks = picks_of(inputs.picks.rows.tolist())  # not how: only rank 0 picks
        others = dataclasses.replace(inputs, picks=picks, hidden_rows=None)
        each = [inputs, *[others] * (len(self.decoders) - 1)]
        results = self._pool.map(lambda decoder, own: decoder.step(own), self.decoders, each)
        return next(results)
