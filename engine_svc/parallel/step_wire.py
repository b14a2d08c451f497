"""A step as numbers, from rank 0 to the others: no code can be in it.

    head    [ kind | num_tokens | num_requests | max_blocks | num_picks | num_logits
              | num_adapters | num_sources | … ]
    body    [ token_ids | positions | slot_mapping | query_start_loc | seq_lens | tables
              | rows to pick from | rows whose logits are wanted | adapters
              | tokens that the step before picks ]

What of the body fits travels behind the head's own fields, in one message of HEAD int32s; a second
one of exactly the rest follows where there is a rest. A step of decodes is one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.backend import PickInputs, StepInputs

if TYPE_CHECKING:
    from kernels.backend import Int32s

HEAD = 2048  # int32s
STEP, STOP, ADAPTER = 1, 2, 3  # kinds; the last is of `adapter_wire`
_FIELDS = 8


def encode(inputs: StepInputs) -> tuple[Int32s, Int32s]:
    """A step's head and the rest of its body, which may be empty.

    How tokens are picked is not in it: who only gives a part of the logits need not know.
    """
    adapters = _NONE if inputs.adapters is None else inputs.adapters
    sources = _NONE if inputs.picked is None else inputs.picked
    body = np.concatenate(
        (
            inputs.token_ids,
            inputs.positions,
            inputs.slot_mapping,
            inputs.query_start_loc,
            inputs.seq_lens,
            inputs.block_tables.reshape(-1),
            inputs.picks.rows,
            inputs.logits_rows,
            adapters,
            sources,
        )
    )
    num_rows = len(inputs.picks.rows), len(inputs.logits_rows), len(adapters), len(sources)
    head = np.zeros(HEAD, dtype=np.int32)
    head[:_FIELDS] = STEP, len(inputs.token_ids), *inputs.block_tables.shape, *num_rows
    here = body[: HEAD - _FIELDS]
    head[_FIELDS : _FIELDS + len(here)] = here
    return head, body[len(here) :]


def stop() -> Int32s:
    """The head that ends the followers."""
    head = np.zeros(HEAD, dtype=np.int32)
    head[0] = STOP
    return head


def rest_length(head: Int32s) -> int:
    """How many int32s follow a step's head. Raises ValueError for what is no step."""
    kind, *sizes = head[:_FIELDS].tolist()
    if kind != STEP or min(sizes) < 0:
        raise ValueError(f"a step was expected of rank 0, not what begins with {kind, *sizes}")
    return max(0, sum(_lengths(head)) - (HEAD - _FIELDS))


def decode(head: Int32s, rest: Int32s) -> StepInputs:
    """The step for a rank that picks nothing, and knows only from which rows rank 0 does."""
    max_blocks = int(head[3])
    body = np.concatenate((head[_FIELDS:], rest)) if len(rest) else head[_FIELDS:]
    arrays, start = [], 0
    for length in _lengths(head):
        arrays.append(body[start : start + length])
        start += length
    token_ids, positions, slot_mapping, starts, seq_lens, tables, *others = arrays
    pick_rows, logits_rows, adapters, sources = others
    return StepInputs(
        token_ids=token_ids,
        positions=positions,
        slot_mapping=slot_mapping,
        query_start_loc=starts,
        seq_lens=seq_lens,
        block_tables=tables.reshape(-1, max_blocks),
        picks=_picks_from(pick_rows),
        logits_rows=logits_rows,
        adapters=adapters if len(adapters) else None,
        picked=sources if len(sources) else None,
    )


def _lengths(head: Int32s) -> tuple[int, ...]:
    """The lengths of the body's arrays, in order."""
    _, num_tokens, num_requests, max_blocks, *num_rows = head[:_FIELDS].tolist()
    tables = num_requests * max_blocks
    return num_tokens, num_tokens, num_tokens, num_requests + 1, num_requests, tables, *num_rows


_NONE = np.empty(0, dtype=np.int32)


def _picks_from(rows: Int32s) -> PickInputs:
    zeros, none = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int32)
    return PickInputs(
        rows=rows, temperature=zeros, top_k=none, top_p=zeros, min_p=zeros, draw=zeros
    )
