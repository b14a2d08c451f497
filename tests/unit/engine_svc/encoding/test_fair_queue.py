"""Whose input is next."""

from __future__ import annotations

import itertools

import pytest

from engine_svc.encoding.call import EncoderCall, EncoderInput
from engine_svc.encoding.fair_queue import FairQueue

_keys = itertools.count()


def call(*sizes: int, priority: int = 0) -> EncoderCall:
    inputs = tuple(EncoderInput((7,) * size, size) for size in sizes)
    return EncoderCall(next(_keys), inputs, arrival=0.0, priority=priority)


@pytest.fixture
def waiting() -> FairQueue:
    return FairQueue()


def taken(waiting: FairQueue, max_tokens: int, max_inputs: int = 99) -> list[tuple[int, int]]:
    """Keys and numbers of the inputs of the next step."""
    return [(item.call.key, item.number) for item in waiting.take(max_tokens, max_inputs)]


def test_a_step_takes_inputs_of_many_calls_within_its_tokens(waiting: FairQueue) -> None:
    first, second, third = call(4), call(3), call(4)
    for each in (first, second, third):
        waiting.add(each)

    assert taken(waiting, 10) == [(first.key, 0), (second.key, 0)]
    assert taken(waiting, 10) == [(third.key, 0)]


def test_a_step_takes_no_more_inputs_than_it_may(waiting: FairQueue) -> None:
    waiting.add(call(1, 1, 1))

    assert len(taken(waiting, 99, max_inputs=2)) == 2


def test_an_input_longer_than_a_step_is_taken_alone(waiting: FairQueue) -> None:
    waiting.add(call(50, 1))

    assert len(taken(waiting, 10)) == 1


def test_an_input_that_does_not_fit_is_not_overtaken(waiting: FairQueue) -> None:
    first, long, short = call(6), call(8), call(1)
    for each in (first, long, short):
        waiting.add(each)

    assert taken(waiting, 10) == [(first.key, 0)]
    assert taken(waiting, 10) == [(long.key, 0), (short.key, 0)]


def test_a_short_call_goes_ahead_of_what_is_left_of_a_long_one(waiting: FairQueue) -> None:
    long, short = call(*[8] * 100), call(8, 8)
    waiting.add(long)
    taken(waiting, 32)
    waiting.add(short)

    step = taken(waiting, 48)

    assert [key for key, _ in step].count(short.key) == 2


def test_calls_share_by_tokens_not_by_inputs(waiting: FairQueue) -> None:
    wide, narrow = call(*[30] * 10), call(*[10] * 30)
    waiting.add(wide)
    waiting.add(narrow)

    given = {wide.key: 0, narrow.key: 0}
    for key, _ in taken(waiting, 300):
        given[key] += 30 if key == wide.key else 10

    assert abs(given[wide.key] - given[narrow.key]) <= 30


def test_a_lower_priority_value_goes_first(waiting: FairQueue) -> None:
    later, urgent = call(1, 1, priority=5), call(1, 1, priority=-1)
    waiting.add(later)
    waiting.add(urgent)

    assert taken(waiting, 3) == [(urgent.key, 0), (urgent.key, 1), (later.key, 0)]


def test_a_removed_call_is_not_taken_nor_counted(waiting: FairQueue) -> None:
    gone, stays = call(3, 3, 3), call(5)
    waiting.add(gone)
    waiting.add(stays)
    taken(waiting, 3)

    waiting.remove(gone.key)

    assert waiting.num_inputs == 1
    assert taken(waiting, 99) == [(stays.key, 0)]
    assert waiting.num_inputs == 0


def test_to_remove_what_is_not_there_changes_nothing(waiting: FairQueue) -> None:
    waiting.add(call(2))

    waiting.remove(-1)

    assert waiting.num_inputs == 1
