"""Rank 0's decoder: tells the others of each step, and of each adapter, before it takes part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.parallel.adapter_wire import encode_adapter
from engine_svc.parallel.step_wire import encode
from engine_svc.worker.executor import WorkerLostError

if TYPE_CHECKING:
    from engine_svc.parallel.ranks import Ranks
    from kernels.backend import Decoder, PackedAdapter, StepInputs, StepResult
    from kernels.lora import LoraAdapter


@dataclass(frozen=True, slots=True)
class SharedAdapter:
    """An adapter for all ranks. Implements `kernels.backend.PackedAdapter`.

    The others pack their parts when a slot takes it: packing here goes on beside steps, of which
    they hear in the same order as of slots.
    """

    own: PackedAdapter
    whole: LoraAdapter

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's part, which is the largest."""
        return self.own.nbytes


class LeadingDecoder:
    """A rank's decoder as the whole model's. Implements `kernels.backend.Decoder`."""

    def __init__(self, own: Decoder, ranks: Ranks) -> None:
        self._own = own
        self._ranks = ranks

    @property
    def weight_bytes(self) -> int:
        """Bytes of this rank's weights."""
        return self._own.weight_bytes

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes the KV pool, each rank its part of it."""
        self._ranks.tell(np.array([num_blocks, block_size], dtype=np.int32))
        self._own.allocate_kv(num_blocks, block_size)

    def pack_adapter(self, adapter: LoraAdapter) -> SharedAdapter:
        """Packs rank 0's part. What it refuses for the whole adapter, no other rank would take."""
        return SharedAdapter(self._own.pack_adapter(adapter), adapter)

    def set_adapter(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Fills a slot of all ranks, or empties it. Raises WorkerLostError if one is gone."""
        if adapter is not None and not isinstance(adapter, SharedAdapter):
            raise TypeError(f"several ranks take no {type(adapter).__name__}")
        for message in encode_adapter(slot, None if adapter is None else adapter.whole):
            self._ranks.tell(message)
        self._own.set_adapter(slot, None if adapter is None else adapter.own)

    def step(self, inputs: StepInputs) -> StepResult:
        """Computes one step with all ranks.

        Raises WorkerLostError for whatever goes wrong: ranks that do not all finish a step are no
        longer at the same place.
        """
        head, rest = encode(inputs)
        self._ranks.tell(head)
        if len(rest):
            self._ranks.tell(rest)
        try:
            return self._own.step(inputs)
        except Exception as error:
            raise WorkerLostError(f"a step over all ranks failed: {error}") from error
