"""What waits for a slow client grows in place, choice by choice, and never get out of order."""

import math

import pytest

from engine_svc.batch import TokenLogprobs
from engine_svc.service.errors import client_too_slow
from engine_svc.service.events import heartbeat
from engine_svc.service.output_stream import OutputStream, TokenRun, to_response


@pytest.fixture
def stream():
    return OutputStream(lambda: None, max_unsent_tokens=4)


def add(stream, choice, position, token_id, logprobs=None, top_k=0):
    stream.add_token(choice, position, token_id, logprobs, top_k)


def test_waiting_tokens_of_a_choice_become_one_run(stream):
    for position, token_id in enumerate((7, 8, 9)):
        add(stream, 0, position, token_id)
        add(stream, 1, position, token_id + 10)

    events, error = stream.take()

    assert error is None
    assert events == [TokenRun(0, 0, [7, 8, 9]), TokenRun(1, 0, [17, 18, 19])]


def test_what_was_taken_is_not_added_to(stream):
    add(stream, 0, 0, 7)
    (first,), _ = stream.take()
    add(stream, 0, 1, 8)
    (second,), _ = stream.take()

    assert (first, second) == (TokenRun(0, 0, [7]), TokenRun(0, 1, [8]))


def test_a_run_can_be_sent_as_a_delta():
    delta = to_response(TokenRun(choice=1, first_position=5, token_ids=[7, 8])).delta

    assert (delta.choice, delta.first_position, list(delta.token_ids)) == (1, 5, [7, 8])
    assert not delta.HasField("logprobs")


def test_other_events_are_sent_as_they_are(stream):
    stream.add(heartbeat())
    (event,), _ = stream.take()

    assert to_response(event) == heartbeat()


def test_logprobs_are_packed_with_as_many_entries_for_each_position(stream):
    add(stream, 0, 0, 7, TokenLogprobs(-1.0, 1, (7, 8), (-1.0, -2.0)), top_k=2)
    add(stream, 0, 1, 8, TokenLogprobs(-3.0, 4, (9,), (-0.5,)), top_k=2)

    (event,), _ = stream.take()

    block = event.delta.logprobs
    assert list(block.token_logprobs) == [-1.0, -3.0]
    assert list(block.token_ranks) == [1, 4]
    assert list(block.top_token_ids) == [7, 8, 9, 0]
    assert math.isnan(block.top_logprobs[3])


def test_the_bound_counts_what_waits_and_not_what_was_sent(stream):
    for position in range(4):
        add(stream, 0, position, 1)
    assert not stream.overflowed
    stream.take()
    for position in range(4, 9):
        add(stream, 0, position, 1)

    assert stream.overflowed
    assert stream.num_unsent_tokens == 5


def test_an_error_comes_after_what_waits_and_nothing_after_it(stream):
    add(stream, 0, 0, 7)
    stream.end(client_too_slow(1))
    stream.add(heartbeat())
    add(stream, 0, 1, 8)

    events, error = stream.take()

    assert events == [TokenRun(0, 0, [7])]
    assert "client too slow" in str(error)
    assert stream.take() == ([], None)


def test_every_event_wakes_the_reader():
    wakes = []
    stream = OutputStream(lambda: wakes.append(1), max_unsent_tokens=4)
    stream.add(heartbeat())
    add(stream, 0, 0, 1)
    stream.end()

    assert len(wakes) == 3
