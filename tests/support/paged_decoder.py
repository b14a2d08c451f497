"""A decoder without a model: its logits are a hash of the tokens it finds through the block tables.

A wrong slot, position, block, row or sequence length changes the hash and everything after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from kernels.backend import StepInputs, StepResult
from kernels.lora import LoraAdapter
from kernels.reference.sampling import pick_tokens
from tests.support.marked_adapter import MarkedAdapter, mark


def logits_after(token_ids: Sequence[int], vocab_size: int, adapter_mark: int = 0) -> np.ndarray:
    """Float32 logits [vocab_size] that follow a sequence of tokens, by an adapter or by none."""
    digest = zlib.crc32(np.asarray(token_ids, dtype=np.int32).tobytes(), adapter_mark)
    return np.random.default_rng(digest).normal(scale=3, size=vocab_size).astype(np.float32)


class PagedDecoder:
    """Writes tokens to slots and reads them back by block table, as attention does with K and V."""

    weight_bytes = 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.steps: list[tuple[int, int, int]] = []  # (num_tokens, num_picks, num_logits) of each
        self.tables: list[list[int]] = []  # block tables of the last step
        self.adapters: dict[int, MarkedAdapter] = {}
        self.poison: int | None = None  # logits after this token are NaN

    def allocate_kv(self, num_blocks: int, block_size: int) -> None:
        """Makes the pool, full of a token that nobody uses."""
        self.block_size = block_size
        self.slots = np.full(num_blocks * block_size, -1, dtype=np.int32)

    def pack_adapter(self, adapter: LoraAdapter) -> MarkedAdapter:
        """Its mark."""
        return mark(adapter)

    def set_adapter(self, slot: int, adapter: MarkedAdapter | None) -> None:
        """Puts an adapter into a slot, or empties it."""
        if adapter is None:
            del self.adapters[slot]
        else:
            self.adapters[slot] = adapter

    def step(self, inputs: StepInputs) -> StepResult:
        """Picks and logits of the wanted rows."""
        for array in (
            inputs.token_ids,
            inputs.positions,
            inputs.slot_mapping,
            inputs.query_start_loc,
            inputs.seq_lens,
            inputs.block_tables,
            inputs.picks.rows,
            inputs.logits_rows,
        ):
            assert array.dtype == np.int32
            assert array.flags.c_contiguous
        self.tables = inputs.block_tables.tolist()
        self.steps.append((len(inputs.token_ids), len(inputs.picks.rows), len(inputs.logits_rows)))
        self.slots[inputs.slot_mapping] = inputs.token_ids
        picked_from = self._logits(inputs, inputs.picks.rows)
        wanted = inputs.hidden_rows
        return StepResult(
            pick_tokens(picked_from, inputs.picks),
            self._logits(inputs, inputs.logits_rows),
            hidden=None if wanted is None else self._logits(inputs, wanted),
        )

    def _logits(self, inputs: StepInputs, rows: np.ndarray) -> np.ndarray:
        """Logits [num_rows, vocab_size] of rows of the step."""
        logits = np.zeros((len(rows), self.vocab_size), dtype=np.float32)
        for i, row in enumerate(rows.tolist()):
            request = int(np.searchsorted(inputs.query_start_loc, row, side="right")) - 1
            seen = np.arange(inputs.seq_lens[request])
            blocks = inputs.block_tables[request, seen // self.block_size]
            context = self.slots[blocks * self.block_size + seen % self.block_size]
            slot = -1 if inputs.adapters is None else int(inputs.adapters[request])
            by = self.adapters[slot].mark if slot >= 0 else 0
            logits[i] = logits_after(context[: inputs.positions[row] + 1], self.vocab_size, by)
            if inputs.token_ids[row] == self.poison:
                logits[i, 0] = np.nan
        return logits
