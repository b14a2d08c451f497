"""A step's arrays arrive as they were sent, whatever their size; nothing else is taken for one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine_svc.parallel.step_wire import HEAD, STOP, decode, encode, rest_length, stop
from kernels.backend import StepInputs
from tests.support.picks import picks_of


def _step(num_decodes: int, num_prefill: int, max_blocks: int) -> StepInputs:
    random = np.random.default_rng(num_prefill)
    num_tokens, num_requests = num_decodes + num_prefill, num_decodes + 1

    def numbers(*shape: int) -> np.ndarray:
        return random.integers(1 << 20, size=shape, dtype=np.int32)

    return StepInputs(
        token_ids=numbers(num_tokens),
        positions=numbers(num_tokens),
        slot_mapping=numbers(num_tokens),
        query_start_loc=numbers(num_requests + 1),
        seq_lens=numbers(num_requests),
        block_tables=numbers(num_requests, max_blocks),
        picks=picks_of(range(num_decodes)),
        logits_rows=numbers(num_prefill),
        adapters=numbers(num_requests) if num_decodes % 32 == 0 else None,
        picked=numbers(num_tokens) if num_decodes else None,
    )


@pytest.mark.parametrize(
    ("sizes", "messages"), [((0, 1, 1), 1), ((32, 1, 20), 1), ((8, 500, 40), 2), ((64, 8, 400), 2)]
)
def test_a_step_arrives_in_one_message_or_two(sizes: tuple[int, int, int], messages: int) -> None:
    sent = _step(*sizes)

    head, rest = encode(sent)
    found = decode(head, rest)

    assert len(head) == HEAD
    assert rest_length(head) == len(rest)
    assert (1 if len(rest) == 0 else 2) == messages
    for field in dataclasses.fields(StepInputs):
        value = getattr(sent, field.name)
        if isinstance(value, np.ndarray):
            assert np.array_equal(getattr(found, field.name), value), field.name
        elif value is None:
            assert getattr(found, field.name) is None, field.name
    # Rows are gathered step by step as rank 0 takes them, which alone knows how it picks.
    assert np.array_equal(found.picks.rows, sent.picks.rows)


def test_the_end_is_no_step() -> None:
    assert stop()[0] == STOP
    with pytest.raises(ValueError, match="a step was expected of rank 0"):
        rest_length(stop())


def test_negative_sizes_are_no_step() -> None:
    head, _ = encode(_step(1, 1, 1))
    head[2] = -1

    with pytest.raises(ValueError, match="a step was expected"):
        rest_length(head)
