"""Masks: which tokens may follow, and that a matcher never forgets where it is."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from engine_svc.constraints.compiler import GrammarCompiler
from engine_svc.constraints.constraint import Constraint
from engine_svc.constraints.grammar import num_words
from tests.support.byte_tokenizer import (
    ADDED,
    END,
    TURN,
    VOCAB_SIZE,
    ids_of,
    text_of,
    write_byte_tokenizer,
)

MODEL_VOCAB = VOCAB_SIZE + 50  # padded, as models are
CALL = VOCAB_SIZE - 1


@pytest.fixture(scope="module")
def grammar_of(tmp_path_factory):
    """Grammars by kind and text, for the tokeniser of `byte_tokenizer`."""
    directory = write_byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    compiler = GrammarCompiler(directory, MODEL_VOCAB, frozenset({END, TURN}))
    yield lambda kind, text="", choices=(): asyncio.run(
        compiler.compile(Constraint(kind, text, choices))
    )
    compiler.close()


def allowed(matcher, *, may_end=True) -> set[int]:
    mask = np.full(num_words(MODEL_VOCAB), 0xFFFFFFFF, np.uint32)
    matcher.fill(mask, may_end=may_end)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def texts(token_ids: set[int]) -> set[str]:
    return {text_of([i]) for i in token_ids}


def test_a_token_may_come_if_all_of_its_text_may(grammar_of) -> None:
    matcher = grammar_of("choice", choices=("abc", "abd", "true")).new_matcher()

    assert texts(allowed(matcher)) == {"a", "ab", "abc", "t", "true"}
    matcher.consume(ids_of("a")[0])
    assert texts(allowed(matcher)) == {"b"}


def test_the_end_may_come_where_the_text_may_end(grammar_of) -> None:
    matcher = grammar_of("regex", "a+").new_matcher()

    assert not allowed(matcher) & {END, TURN}
    matcher.consume(ids_of("a")[0])
    assert {END, TURN} <= allowed(matcher)
    assert texts(allowed(matcher, may_end=False)) == {"a"}


def test_a_text_that_can_only_end_has_ended(grammar_of) -> None:
    matcher = grammar_of("choice", choices=("ab",)).new_matcher(ids_of("ab"))

    assert matcher.ended
    assert matcher.error is None
    assert allowed(matcher, may_end=False) == {END, TURN}  # nothing else is left


def test_a_text_that_an_end_token_ended_has_ended(grammar_of) -> None:
    matcher = grammar_of("regex", "a+").new_matcher([*ids_of("a"), TURN])

    assert matcher.ended
    assert matcher.error is None


def test_control_tokens_and_padding_are_never_text(grammar_of) -> None:
    matcher = grammar_of("regex", r"(.|\n)*").new_matcher()

    ids = allowed(matcher)

    assert ids & set(range(256, MODEL_VOCAB)) == {
        *range(256, END),  # words
        END,
        TURN,
        CALL,  # added, but not special
    }


def test_a_text_may_be_written_with_the_token_that_is_made_for_it(grammar_of) -> None:
    matcher = grammar_of("choice", choices=(f"{ADDED}true",)).new_matcher()

    assert CALL in allowed(matcher)
    matcher.consume(CALL)
    assert texts(allowed(matcher)) == {"t", "true"}


def test_a_token_that_may_not_come_is_an_error_for_good(grammar_of) -> None:
    matcher = grammar_of("regex", "a+").new_matcher(ids_of("ab"))

    assert matcher.error is not None
    assert not matcher.ended
    assert allowed(matcher) == set()
    matcher.consume(ids_of("a")[0])
    assert allowed(matcher) == set()


def masks_after(matcher, guesses) -> np.ndarray:
    masks = np.full((1 + len(guesses), num_words(MODEL_VOCAB)), 0xFFFFFFFF, np.uint32)
    matcher.fill_after(guesses, masks, may_end=True)
    return masks


@pytest.mark.parametrize(
    "text", ['{"a":12,"b":"x"}', '{"a": 3,\n"b":"}"}', '{"a":-1,"b":""}', '{"b":1}', "nonsense"]
)
def test_masks_after_guesses_are_those_of_the_tokens_one_by_one(grammar_of, text) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    grammar = grammar_of("json_schema", json.dumps(schema))
    guesses = ids_of(text)
    matcher, fresh = grammar.new_matcher(), grammar.new_matcher()

    masks = masks_after(matcher, guesses)

    for i, guess in enumerate((*guesses, None)):
        expected = masks_after(fresh, ())[0]
        np.testing.assert_array_equal(masks[i], expected)
        if guess is None or not expected[guess // 32] >> (guess % 32) & 1:
            assert not masks[i + 1 :].any()
            break
        fresh.consume(guess)
        if fresh.ended:
            assert i == len(guesses) - 1
            break
    assert not matcher.ended  # the guesses were only guesses
    np.testing.assert_array_equal(
        masks_after(matcher, ())[0], masks_after(grammar.new_matcher(), ())[0]
    )


def test_blanks_never_follow_each_other_between_the_marks_of_json(grammar_of) -> None:
    grammar = grammar_of("json_schema", '{"type": "array", "items": {"type": "integer"}}')

    for text in ("[", "[1", "[1,", "[1 ,"):
        matcher = grammar.new_matcher(ids_of(text))
        assert matcher.error is None
        matcher.consume(ids_of(" ")[0])
        assert " " not in texts(allowed(matcher))


def test_a_schema_cannot_loosen_its_own_rules(grammar_of) -> None:
    schema = {
        "type": "array",
        "items": {"type": "integer"},
        "x-guidance": {"whitespace_pattern": "[ ]*", "lenient": True},
    }

    matcher = grammar_of("json_schema", json.dumps(schema)).new_matcher(ids_of("[ "))

    assert " " not in texts(allowed(matcher))
