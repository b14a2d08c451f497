"""Tokens become text, stop strings end it, and every token leaves with the text it completes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router_svc.choice_text import ChoiceText
from router_svc.generation_types import (
    ChoiceDelta,
    EngineDelta,
    EngineFinish,
    EngineProtocolError,
    FinishReason,
    GenerationRequest,
    Logprob,
    Sampling,
)
from router_svc.text.tokenizer import Tokenizer

TEXT = "Once there was a small boat – «ď → 👩‍👩‍👧‍👦» – and it sailed away."


@pytest.fixture(scope="module")
def tokenizer(smollm2_checkpoint: Path) -> Tokenizer:
    return Tokenizer.load(smollm2_checkpoint)


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False, parse_special=False)


def _request(**options: object) -> GenerationRequest:
    return GenerationRequest("r", (1,), Sampling(), **options)  # type: ignore[arg-type]


def _run(
    tokenizer: Tokenizer, request: GenerationRequest, ids: list[int], sizes: list[int]
) -> list[ChoiceDelta]:
    """Feeds the ids in deltas of the given sizes (repeated), then the end."""
    choice, deltas, at, turn = ChoiceText(0, request, tokenizer), [], 0, 0
    while at < len(ids):
        size = sizes[turn % len(sizes)]
        part = ids[at : at + size]
        logprobs = [Logprob(token_id, -1.0, 1, ()) for token_id in part]
        delta = choice.add(EngineDelta(0, at, part, logprobs))
        at, turn = at + len(part), turn + 1
        if delta is not None:
            deltas.append(delta)
            if delta.finish_reason is not None:
                return deltas
    deltas.append(choice.add(EngineFinish(0, FinishReason.LENGTH, None, len(ids))))
    return deltas


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_deltas_join_to_the_text_and_the_tokens_whatever_the_split(
    tokenizer: Tokenizer, sizes: list[int]
) -> None:
    ids = _encode(tokenizer, TEXT)

    deltas = _run(tokenizer, _request(), ids, sizes)

    assert "".join(d.text for d in deltas) == TEXT
    assert [t for d in deltas for t in d.token_ids] == ids
    assert [lp.token_id for d in deltas for lp in d.logprobs] == ids
    assert all("\ufffd" not in d.text for d in deltas)
    assert all(d.text for d in deltas[:-1])


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    begin=st.integers(0, len(TEXT) - 8),
    length=st.integers(1, 8),
)
def test_no_character_of_a_stop_string_is_shown(
    tokenizer: Tokenizer, sizes: list[int], begin: int, length: int
) -> None:
    stop = TEXT[begin : begin + length]
    ids = _encode(tokenizer, TEXT)

    deltas = _run(tokenizer, _request(stop=(stop,)), ids, sizes)

    assert "".join(d.text for d in deltas) == TEXT[: TEXT.index(stop)]
    assert deltas[-1].finish_reason is FinishReason.STOP
    assert deltas[-1].stop_reason == stop


def test_tokens_up_to_the_one_that_completes_the_stop_string_count(tokenizer: Tokenizer) -> None:
    ids = _encode(tokenizer, "one two three four five")

    by_one = _run(tokenizer, _request(stop=(" three",)), ids, [1])
    at_once = _run(tokenizer, _request(stop=(" three",)), ids, [len(ids)])

    assert [t for d in by_one for t in d.token_ids] == ids[:3]
    assert [t for d in at_once for t in d.token_ids] == ids[:3]


def test_a_stop_string_can_be_part_of_the_text(tokenizer: Tokenizer) -> None:
    ids = _encode(tokenizer, "one two three four")

    deltas = _run(tokenizer, _request(stop=("two",), include_stop=True), ids, [1])

    assert "".join(d.text for d in deltas) == "one two"


def test_stop_strings_are_not_looked_for_before_min_tokens(tokenizer: Tokenizer) -> None:
    ids = _encode(tokenizer, "one two one two one two")

    deltas = _run(tokenizer, _request(stop=(" two",), min_tokens=3), ids, [2])

    assert "".join(d.text for d in deltas) == "one two one"


def test_the_text_of_a_stop_token_is_shown_only_on_demand(tokenizer: Tokenizer) -> None:
    ids = _encode(tokenizer, "one two three")

    def finished(**options: object) -> tuple[str, object]:
        choice = ChoiceText(0, _request(stop_token_ids=(ids[2],), **options), tokenizer)
        delta = choice.add(EngineDelta(0, 0, ids, ()))
        end = choice.add(EngineFinish(0, FinishReason.STOP, ids[2], 3))
        return (delta.text if delta else "") + end.text, end.stop_reason

    assert finished() == ("one two", ids[2])
    assert finished(include_stop=True) == ("one two three", ids[2])


def test_offsets_say_where_each_token_begins(tokenizer: Tokenizer) -> None:
    ids = _encode(tokenizer, "one two three")

    (delta, end) = _run(tokenizer, _request(), ids, [3])

    assert [delta.text[i:] for i in delta.offsets] == ["one two three", " two three", " three"]
    assert end.offsets == ()


def test_a_gap_in_the_positions_is_an_error(tokenizer: Tokenizer) -> None:
    choice = ChoiceText(0, _request(), tokenizer)

    with pytest.raises(EngineProtocolError, match="from position 1, expected 0"):
        choice.add(EngineDelta(0, 1, [5], ()))


def test_a_wrong_count_at_the_end_is_an_error(tokenizer: Tokenizer) -> None:
    choice = ChoiceText(0, _request(), tokenizer)

    with pytest.raises(EngineProtocolError, match="counts 2 tokens, 0 arrived"):
        choice.add(EngineFinish(0, FinishReason.STOP, None, 2))
