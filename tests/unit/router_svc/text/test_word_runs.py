"""A banned word as tokens: as it begins a text, and as it follows a space."""

from __future__ import annotations

import pytest

from router_svc.text.tokenizer import Tokenizer


def texts_of(tokenizer: Tokenizer, *words: str) -> list[str]:
    runs = tokenizer.word_runs(words)
    return [b"".join(map(tokenizer.token_bytes, run)).decode() for run in runs]


def test_a_word_is_banned_with_and_without_a_space(smollm2: Tokenizer) -> None:
    assert texts_of(smollm2, "Paris") == ["Paris", " Paris"]
    assert texts_of(smollm2, "  New York") == ["New York", " New York"]


def test_words_that_are_the_same_are_banned_once(smollm2: Tokenizer) -> None:
    assert texts_of(smollm2, "Paris", " Paris", "Paris") == ["Paris", " Paris"]


def test_a_control_token_is_banned_as_the_token(smollm2: Tokenizer) -> None:
    assert (2,) in smollm2.word_runs(["<|im_end|>"])


def test_a_tokeniser_that_begins_texts_with_a_space_bans_what_it_writes(
    sentencepiece: Tokenizer,
) -> None:
    runs = sentencepiece.word_runs(["hello"])

    def encode(text: str) -> tuple[int, ...]:
        ids = sentencepiece.encode(text, add_special_tokens=False, parse_special=True)
        return tuple(ids)

    assert set(runs) == {encode("hello"), encode(" hello")}


@pytest.mark.parametrize("word", ["", " ", "\n\t"])
def test_a_word_of_nothing_is_refused(smollm2: Tokenizer, word: str) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        smollm2.word_runs(["ok", word])
