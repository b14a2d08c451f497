"""Rank 0's decoder: tells the others of each step, and of each adapter, before it takes part."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine_svc.parallel.adapter_wire import encode_adapter
from engine_svc.parallel.step_wire import encode
from engine_svc.worker.executor import WorkerLostError
from kernels.backend import AsyncDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_svc.parallel.ranks import Ranks
    from kernels.backend import BegunStep, Decoder, PackedAdapter, StepInputs, StepResult
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
        self._tell(inputs)
        with _together():
            return self._own.step(inputs)

    def _tell(self, inputs: StepInputs) -> None:
        head, rest = encode(inputs)
        self._ranks.tell(head)
        if len(rest):
            self._ranks.tell(rest)


class LeadingAsyncDecoder(LeadingDecoder, AsyncDecoder):
    """The same where ranks compute while their hosts go on: steps may be begun one ahead."""

    def __init__(self, own: Decoder, ahead: AsyncDecoder, ranks: Ranks) -> None:
        """`own` and `ahead` are one decoder."""
        super().__init__(own, ranks)
        self._ahead = ahead
        self._owing: _SharedStep | None = None

    def begin(self, inputs: StepInputs) -> BegunStep:
        """Starts one step on all ranks. Raises as `step`.

        The others give their part of a step's logits at once. If that step was given up, as the one
        before it failed, they are taken now: else they would be taken for those of this step.
        """
        if self._owing is not None and not self._owing.is_asked:
            self._owing.result()
        self._tell(inputs)
        with _together():
            begun = _SharedStep(self._ahead.begin(inputs))
        self._owing = begun if len(inputs.logits_rows) else None
        return begun


def leading(own: Decoder, ranks: Ranks) -> LeadingDecoder:
    """Rank 0's decoder as that of all ranks, which computes by itself where it does."""
    if isinstance(own, AsyncDecoder):
        return LeadingAsyncDecoder(own, own, ranks)
    return LeadingDecoder(own, ranks)


class _SharedStep:
    """A step that all ranks compute. Implements `kernels.backend.BegunStep`."""

    def __init__(self, own: BegunStep) -> None:
        self._own = own
        self.is_asked = False

    def result(self) -> StepResult:
        """Waits for the step. Raises as `LeadingDecoder.step`."""
        self.is_asked = True
        with _together():
            return self._own.result()


@contextmanager
def _together() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise WorkerLostError(f"a step over all ranks failed: {error}") from error
