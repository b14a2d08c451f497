"""Drives a decoder step by step over a paged cache: what a model runner does, at its simplest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.backend import StepInputs, StoredTensor
from tests.support.picks import picks_of
from tests.support.stored_tensors import stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernels.backend import Decoder, PickInputs
    from kernels.coded import CodedTensor
    from kernels.spec import DecoderSpec

BLOCK_SIZE = 16
NUM_BLOCKS = 256


class DictSource:
    """Weights out of a dictionary; `asked` keeps the order of the names that were loaded."""

    def __init__(self, weights: dict[str, torch.Tensor | StoredTensor | CodedTensor]) -> None:
        self.weights = {
            name: stored(weight) if isinstance(weight, torch.Tensor) else weight
            for name, weight in weights.items()
        }
        self.asked: list[str] = []

    @property
    def total_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(weight.nbytes for weight in self.weights.values())

    def scheme(self, name: str) -> str:
        """The type of one weight."""
        return self.weights[name].scheme

    def load(self, name: str) -> StoredTensor | CodedTensor:
        """One weight."""
        self.asked.append(name)
        return self.weights[name]


def random_weights(spec: DecoderSpec, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights that keep activations near one."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator)
        * (shape[1] ** -0.5 if len(shape) == 2 else 0.2)
        + (1.0 if name.endswith("norm") and not spec.norm_offset else 0.0)
        for name, shape in spec.weight_shapes().items()
    }


class Run:
    """A decoder with a cache, and blocks for requests in a scattered order.

    `adapters` has the slots of requests that have an adapter, or -1.
    """

    def __init__(self, decoder: Decoder, adapters: Mapping[str, int] | None = None) -> None:
        decoder.allocate_kv(NUM_BLOCKS, BLOCK_SIZE)
        self._decoder = decoder
        self._adapters = adapters or {}
        order = torch.randperm(NUM_BLOCKS - 1, generator=torch.Generator().manual_seed(1))
        self._free = (order + 1).tolist()
        self._tables: dict[str, list[int]] = {}
        self._lengths: dict[str, int] = {}

    def step(self, *chunks: tuple[str, Sequence[int]]) -> dict[str, torch.Tensor]:
        """Feeds each named request its next tokens; returns the logits of all of their rows."""
        lengths = [len(tokens) for _, tokens in chunks]
        result = self._decoder.step(self.inputs(*chunks, logits_rows=range(sum(lengths))))
        logits = torch.from_numpy(result.logits.copy())  # the decoder may use the memory again
        names = [name for name, _ in chunks]
        return dict(zip(names, logits.split(lengths), strict=True))

    def inputs(
        self,
        *chunks: tuple[str, Sequence[int]],
        logits_rows: Sequence[int],
        picks: PickInputs | None = None,
    ) -> StepInputs:
        """The next step's batch, with blocks taken for it."""
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for name, tokens in chunks:
            start = self._lengths.get(name, 0)
            self._lengths[name] = start + len(tokens)
            table = self._tables.setdefault(name, [])
            while len(table) * BLOCK_SIZE < self._lengths[name]:
                table.append(self._free.pop())
            ids += tokens
            for position in range(start, self._lengths[name]):
                positions.append(position)
                slots.append(table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE)
            starts.append(len(ids))
        names = [name for name, _ in chunks]
        widest = max(len(self._tables[name]) for name in names)
        slots_of = [self._adapters.get(name, -1) for name in names]
        tables = [self._tables[name] + [0] * (widest - len(self._tables[name])) for name in names]
        return StepInputs(
            token_ids=_int32(ids),
            positions=_int32(positions),
            slot_mapping=_int32(slots),
            query_start_loc=_int32(starts),
            seq_lens=_int32([self._lengths[name] for name in names]),
            block_tables=_int32(tables),
            picks=picks_of() if picks is None else picks,
            logits_rows=_int32(list(logits_rows)),
            adapters=_int32(slots_of) if any(slot >= 0 for slot in slots_of) else None,
        )


def _int32(values: list) -> np.ndarray:
    return np.array(values, dtype=np.int32)
