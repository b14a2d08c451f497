"""Runs an opened model on the reference back end, outside an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.backend import StepInputs
from kernels.reference.backend import ReferenceBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_svc.loader.opened import OpenedModel

BLOCK_SIZE = 16


def reference_logits(
    opened: OpenedModel, prompts: Sequence[Sequence[int]], dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """Logits [num_tokens, vocab_size] of each prompt, all in one step over a paged cache."""
    decoder = ReferenceBackend(None).load(
        opened.spec, opened.source, dtype, lambda done, total: None
    )
    lengths = [len(prompt) for prompt in prompts]
    needed = [-(-length // BLOCK_SIZE) for length in lengths]
    decoder.allocate_kv(sum(needed) + 1, BLOCK_SIZE)
    tables = torch.zeros(len(prompts), max(needed), dtype=torch.int32)
    slots = []
    first = 1  # block 0 is left alone, as unused table entries name it
    for row, (length, blocks) in enumerate(zip(lengths, needed, strict=True)):
        tables[row, :blocks] = torch.arange(first, first + blocks)
        slots += [first * BLOCK_SIZE + position for position in range(length)]
        first += blocks
    starts = torch.tensor([0, *lengths]).cumsum(0)
    logits = decoder.step(
        StepInputs(
            token_ids=_int32(token for prompt in prompts for token in prompt),
            positions=_int32(position for length in lengths for position in range(length)),
            slot_mapping=_int32(slots),
            query_start_loc=starts.to(torch.int32),
            seq_lens=_int32(lengths),
            block_tables=tables,
            logits_rows=torch.arange(sum(lengths), dtype=torch.int32),
        )
    )
    return list(logits.split(lengths))


def _int32(values) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.int32)
