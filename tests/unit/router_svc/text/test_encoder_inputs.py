"""Texts as an encoder's inputs, against what the tokenizers library makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import processors

from router_svc.engines.encoder_types import EncoderInput
from router_svc.text.encoder_inputs import TooShortError, pair_input, text_input
from router_svc.text.tokenizer import Tokenizer
from tests.support.word_pieces import CLS, ID, SEP, word_pieces, write_word_pieces

FIRST, SECOND = "the cat sat", "a dog runs on the red mat"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return Tokenizer.load(write_word_pieces(tmp_path))


def test_limits_left_over_in_the_file_neither_cut_nor_pad(tokenizer: Tokenizer) -> None:
    assert text_input(tokenizer, "The cats", kept=None).token_ids == [
        CLS,
        *(ID["the"], ID["cat"], ID["##s"]),
        SEP,
    ]
    assert text_input(tokenizer, SECOND, kept=None).token_ids == word_pieces().encode(SECOND).ids


def test_a_text_is_cut_at_its_end_and_keeps_its_special_tokens(tokenizer: Tokenizer) -> None:
    assert text_input(tokenizer, FIRST, kept=4).token_ids == [CLS, ID["the"], ID["cat"], SEP]
    assert text_input(tokenizer, FIRST, kept=2).token_ids == [CLS, SEP]
    assert text_input(tokenizer, FIRST, kept=99).token_ids == word_pieces().encode(FIRST).ids


def test_a_text_without_special_tokens_is_cut_just_so(tokenizer: Tokenizer) -> None:
    bare = text_input(tokenizer, FIRST, kept=2, add_special_tokens=False)

    assert bare.token_ids == [ID["the"], ID["cat"]]


def test_fewer_tokens_than_special_ones_are_refused_with_both_numbers(tokenizer: Tokenizer) -> None:
    with pytest.raises(TooShortError, match=r"1 tokens .* 2 special"):
        text_input(tokenizer, FIRST, kept=1)


@pytest.mark.parametrize(("first", "second"), [(FIRST, SECOND), (SECOND, FIRST), (FIRST, FIRST)])
@pytest.mark.parametrize("kept", [None, *range(3, 16)])
def test_a_pair_is_what_the_tokenizers_library_makes_of_it(
    tokenizer: Tokenizer, first: str, second: str, kept: int | None
) -> None:
    reference = word_pieces()
    if kept is not None:
        reference.enable_truncation(kept)

    made = pair_input(tokenizer, tokenizer.pair, first, second, kept=kept)

    expected = reference.encode(first, second)
    assert made.token_ids == expected.ids
    assert made.first_segment_tokens == expected.type_ids.count(0)


def test_a_pair_of_one_segment_says_so(tmp_path: Path) -> None:
    backend = word_pieces()
    backend.post_processor = processors.RobertaProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)

    made = pair_input(tokenizer, tokenizer.pair, FIRST, "a dog", kept=None)

    assert made == EncoderInput(backend.encode(FIRST, "a dog").ids, 0)
    assert made.token_ids.count(SEP) == 3


def test_a_model_that_takes_no_segments_gets_none(tmp_path: Path) -> None:
    write_word_pieces(tmp_path)
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names))
    tokenizer = Tokenizer.load(tmp_path)

    made = pair_input(tokenizer, tokenizer.pair, FIRST, SECOND, kept=None)

    assert made == EncoderInput(word_pieces().encode(FIRST, SECOND).ids, 0)


def test_tokens_are_shown_although_no_text_can_be_streamed_of_them(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token_text(ID[word]) for word in ("cat", "##s")] == ["cat", "##s"]
