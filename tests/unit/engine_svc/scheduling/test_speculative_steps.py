"""Steps with guesses: when there are some, and what becomes of right and wrong ones."""

from __future__ import annotations

import pytest
from fake_worker import BLOCK, EOS, Engine, echo

from engine_svc.scheduling.request import FinishReason
from engine_svc.speculation.config import SpeculationConfig

ALWAYS, NEVER = echo([True]), echo([False])
LOOP = (5, 6, 7, 5, 6, 7)  # what `echo` goes on with: 5, 6, 7 …


def engine(model=ALWAYS, *, num_guesses=5, **limits) -> Engine:
    return Engine(model=model, speculation=SpeculationConfig(num_guesses), **limits)


def guesses(engine: Engine) -> list[int]:
    """How many guesses each chunk of the last step had."""
    return [len(chunk.draft_token_ids) for chunk in engine.last_batch.chunks]


def test_right_guesses_bring_several_tokens_in_one_step() -> None:
    engine_ = engine()
    request = engine_.add(LOOP, max_tokens=20)
    engine_.step()

    outputs = engine_.step()

    assert guesses(engine_) == [5]
    assert [token.token_id for token in outputs.tokens] == [6, 7, 5, 6, 7, 5]
    assert [token.position for token in outputs.tokens] == [1, 2, 3, 4, 5, 6]
    assert [(draft.num_tokens, draft.num_accepted) for draft in outputs.drafts] == [(5, 5)]
    assert request.num_uncomputed_tokens == 1


def test_a_wrong_guess_costs_no_token_and_changes_none() -> None:
    engine_ = engine(NEVER)
    request = engine_.add(LOOP, max_tokens=30)
    alone = Engine(model=NEVER)
    expected = alone.add(LOOP, max_tokens=30)
    alone.run()

    engine_.run()

    assert request.output_token_ids == expected.output_token_ids
    assert len(engine_.worker.batches) <= len(alone.worker.batches)


def test_guessing_pauses_where_it_keeps_failing() -> None:
    engine_ = engine(echo([False], period=3), num_guesses=4)
    engine_.add((1, 2) * 10, max_tokens=40, min_tokens=40)
    engine_.run()

    tried = sum(1 for outputs in engine_.outputs if outputs.drafts)

    assert 1 <= tried < 20


@pytest.mark.parametrize(("max_tokens", "tokens"), [(1, 1), (2, 2), (4, 4), (7, 7)])
def test_max_tokens_is_exact(max_tokens: int, tokens: int) -> None:
    engine_ = engine()
    request = engine_.add(LOOP, max_tokens=max_tokens)

    engine_.run()

    assert len(request.output_token_ids) == tokens
    assert request.finish_reason is FinishReason.LENGTH
    assert engine_.kv.num_free_blocks == engine_.kv.num_blocks


def test_the_context_length_is_exact() -> None:
    engine_ = engine(max_model_len=16, num_blocks=4)
    request = engine_.add(LOOP, max_tokens=100)

    engine_.run()

    assert request.num_tokens == 16


def test_what_follows_a_stop_token_in_the_same_step_is_dropped() -> None:
    engine_ = engine()
    request = engine_.add(LOOP, max_tokens=20, stop_token_ids=frozenset({7}))
    engine_.step()

    outputs = engine_.step()

    assert request.output_token_ids == [5, 6, 7]
    assert [token.token_id for token in outputs.tokens] == [6, 7]
    assert outputs.finished[0].stop_token_id == 7


def test_a_stop_token_before_min_tokens_is_passed_over_within_a_step() -> None:
    engine_ = engine()
    request = engine_.add(LOOP, max_tokens=20, min_tokens=4, stop_token_ids=frozenset({7, 6}))

    engine_.run()

    assert request.output_token_ids == [5, 6, 7, 5, 6]


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 0},
        {"repetition_penalty": 1.1},
        {"frequency_penalty": 0.1},
        {"presence_penalty": 0.1},
        {"bad_words": ((1, 2),)},
        {"logit_bias": {5: 1.0}},
        {"allowed_token_ids": (5, 6, 7)},
        {"min_tokens": 20, "masked_until_min_tokens": frozenset({EOS})},
    ],
    ids=str,
)
def test_requests_whose_rows_need_more_than_a_pick_get_no_guesses(fields: dict) -> None:
    engine_ = engine()
    request = engine_.add(LOOP, max_tokens=20, **fields)

    engine_.run()

    assert not any(outputs.drafts for outputs in engine_.outputs)
    assert len(request.output_token_ids) == 20


def test_guessing_begins_once_min_tokens_are_reached() -> None:
    engine_ = engine()
    engine_.add(LOOP, max_tokens=20, min_tokens=3, masked_until_min_tokens=frozenset({EOS}))
    for _ in range(3):
        engine_.step()
    assert guesses(engine_) == [0]

    engine_.step()

    assert guesses(engine_) == [5]


def test_many_streams_leave_no_room_for_guesses() -> None:
    engine_ = engine()
    for first in (1, 2):
        engine_.add((first, *LOOP), max_tokens=30)
    engine_.step()
    engine_.step()
    assert guesses(engine_) == [3, 3]

    for first in (3, 4, 8):
        engine_.add((first, *LOOP), max_tokens=30)
    engine_.step()
    engine_.step()

    assert guesses(engine_) == [0] * 5


def test_a_step_with_prefill_has_no_guesses() -> None:
    engine_ = engine()
    engine_.add(LOOP, max_tokens=30)
    engine_.step()
    engine_.add((1, 2, 3), max_tokens=30)

    engine_.step()

    assert guesses(engine_) == [0, 0]


def test_guesses_never_preempt_anybody() -> None:
    # Two requests of two blocks each fill the pool; guesses would need a third.
    engine_ = engine(num_blocks=4, max_model_len=4 * BLOCK)
    for first in (1, 2):
        engine_.add((first, *LOOP[1:]), max_tokens=9)
    engine_.step()

    outputs = engine_.step()

    assert guesses(engine_) == [0, 0]
    assert outputs.preempted == ()


def test_only_accepted_tokens_are_shared_with_later_requests() -> None:
    model = echo([True, True, True, True, True, False])
    engine_ = engine(model, num_guesses=7)
    first = engine_.add(LOOP, max_tokens=30)
    engine_.run()

    # The fake worker compares every slot it reads with the tokens that should be there.
    again = engine_.add((*LOOP, *first.output_token_ids), max_tokens=8)
    engine_.run()

    assert again.num_cached_tokens >= 8 * BLOCK
    assert any(draft.num_accepted < draft.num_tokens for o in engine_.outputs for draft in o.drafts)
    assert any(draft.num_accepted for o in engine_.outputs for draft in o.drafts)
