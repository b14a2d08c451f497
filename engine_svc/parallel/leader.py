"""Rank 0's decoder: tells the others of each step before it takes part in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine_svc.parallel.step_wire import encode
from engine_svc.worker.executor import WorkerLostError

if TYPE_CHECKING:
    from engine_svc.parallel.ranks import Ranks
    from kernels.backend import Decoder, StepInputs, StepResult


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
