"""Runs an opened model on the reference back end, outside an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.backend import Precision, StepInputs
from kernels.reference.backend import ReferenceBackend
from tests.support.picks import picks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_svc.loader.opened import OpenedModel

BLOCK_SIZE = 16


def reference_logits(
    opened: OpenedModel, prompts: Sequence[Sequence[int]], dtype: str = "float32"
) -> list[torch.Tensor]:
    """Logits [num_tokens, vocab_size] of each prompt, all in one step over a paged cache."""
    backend = ReferenceBackend(torch.get_num_threads())
    precision = Precision(dtype, weights="auto", kv_cache="auto")
    decoder = backend.load(opened.spec, opened.source, precision, lambda done, total: None)
    lengths = [len(prompt) for prompt in prompts]
    needed = [-(-length // BLOCK_SIZE) for length in lengths]
    decoder.allocate_kv(sum(needed) + 1, BLOCK_SIZE)
    tables = np.zeros((len(prompts), max(needed)), dtype=np.int32)
    slots = []
    first = 1  # block 0 is left alone, as unused table entries name it
    for row, (length, blocks) in enumerate(zip(lengths, needed, strict=True)):
        tables[row, :blocks] = np.arange(first, first + blocks)
        slots += [first * BLOCK_SIZE + position for position in range(length)]
        first += blocks
    result = decoder.step(
        StepInputs(
            token_ids=_int32(token for prompt in prompts for token in prompt),
            positions=_int32(position for length in lengths for position in range(length)),
            slot_mapping=_int32(slots),
            query_start_loc=_int32(np.cumsum([0, *lengths])),
            seq_lens=_int32(lengths),
            block_tables=tables,
            picks=picks_of(),
            logits_rows=_int32(range(sum(lengths))),
        )
    )
    return list(torch.from_numpy(result.logits).split(lengths))


def _int32(values) -> np.ndarray:
    return np.array(list(values), dtype=np.int32)
