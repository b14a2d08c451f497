"""Streamed text is the decoded text, whatever the tokens and wherever the stream is cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from router_svc.text.detokenizer import Detokenizer
from router_svc.text.pieces import UnsupportedDecoderError
from router_svc.text.tokenizer import Tokenizer
from router_svc.text.tokenizer_parts import TokenizerParts

if TYPE_CHECKING:
    from collections.abc import Sequence

EMOJI = "ď → 👩‍👩‍👧‍👦 🇨🇿 访问 👍🏽"

thoroughly = settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])


def streamed(
    tokenizer: Tokenizer, ids: Sequence[int], *, skip: bool, interval: int = 1
) -> list[str]:
    """The chunks that a client sees if it gets text every `interval` tokens."""
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
    texts = [detokenizer.add(token_id) for token_id in ids]
    chunks = ["".join(texts[i : i + interval]) for i in range(0, len(texts), interval)]
    return [*chunks, detokenizer.flush()]


def id_sequences(tokenizer_size: int) -> st.SearchStrategy[list[int]]:
    """Sequences in which the first tokens (control tokens, bytes, short pieces) are common."""
    common = st.integers(0, min(400, tokenizer_size - 1))
    return st.lists(common | st.integers(0, tokenizer_size - 1), max_size=40)


@given(text=st.text(max_size=60), interval=st.sampled_from([1, 3, 8]))
@thoroughly
def test_any_text_survives_token_by_token(smollm2: Tokenizer, text: str, interval: int) -> None:
    ids = smollm2.encode(text, add_special_tokens=False, parse_special=False)

    chunks = streamed(smollm2, ids, skip=True, interval=interval)

    # Not `text` itself: this vocabulary lacks a few control characters.
    assert "".join(chunks) == smollm2.decode(ids, skip_special_tokens=True)


@given(text=st.text(max_size=60), interval=st.sampled_from([1, 3, 8]))
@thoroughly
def test_any_text_survives_token_by_token_with_byte_fallback(
    sentencepiece: Tokenizer, text: str, interval: int
) -> None:
    ids = sentencepiece.encode(text, add_special_tokens=False, parse_special=False)

    chunks = streamed(sentencepiece, ids, skip=True, interval=interval)

    assert "".join(chunks) == sentencepiece.decode(ids, skip_special_tokens=True)


@given(ids=id_sequences(49152), skip=st.booleans())
@thoroughly
def test_any_byte_level_tokens_stream_as_they_decode(
    smollm2: Tokenizer, ids: list[int], skip: bool
) -> None:
    assert "".join(streamed(smollm2, ids, skip=skip)) == smollm2.decode(
        ids, skip_special_tokens=skip
    )


@given(ids=id_sequences(330), skip=st.booleans())
@settings(parent=thoroughly, max_examples=1000)
def test_any_byte_fallback_tokens_stream_as_they_decode(
    sentencepiece: Tokenizer, ids: list[int], skip: bool
) -> None:
    assert "".join(streamed(sentencepiece, ids, skip=skip)) == sentencepiece.decode(
        ids, skip_special_tokens=skip
    )


@given(ids=id_sequences(330), cut=st.integers(0, 40))
@thoroughly
def test_a_stream_can_be_taken_up_at_any_token(
    sentencepiece: Tokenizer, ids: list[int], cut: int
) -> None:
    first = Detokenizer(sentencepiece, skip_special_tokens=True)
    before = "".join(first.add(token_id) for token_id in ids[:cut])

    second = Detokenizer(sentencepiece, skip_special_tokens=True, prefix=ids[:cut])
    after = "".join(second.add(token_id) for token_id in ids[cut:]) + second.flush()

    assert before + after == sentencepiece.decode(ids, skip_special_tokens=True)
    assert second.num_complete == len(ids[cut:])


def test_no_chunk_holds_half_a_character(smollm2: Tokenizer) -> None:
    ids = smollm2.encode(EMOJI, add_special_tokens=False, parse_special=False)

    chunks = streamed(smollm2, ids, skip=True)

    assert len(ids) > len(EMOJI)  # characters do span tokens here
    assert not any("\ufffd" in chunk for chunk in chunks)
    assert "".join(chunks) == EMOJI


def test_a_character_cut_off_by_the_end_shows_once(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("ok 👍", add_special_tokens=False, parse_special=False)[:-1]

    chunks = streamed(smollm2, ids, skip=True)

    assert "".join(chunks) == "ok \ufffd"
    assert chunks[-1] == "\ufffd"


def test_tokens_are_complete_when_the_character_they_share_is(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("👍!", add_special_tokens=False, parse_special=False)
    detokenizer = Detokenizer(smollm2, skip_special_tokens=True)

    seen = [(detokenizer.add(token_id), detokenizer.num_complete) for token_id in ids]

    assert [text for text, _ in seen if text] == ["👍", "!"]
    assert [done for text, done in seen if not text] == [0] * (len(ids) - 2)
    assert [done for text, done in seen if text] == [len(ids) - 1, len(ids)]


def test_control_tokens_show_only_on_request(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("<|im_start|>Hi<|im_end|>", add_special_tokens=False, parse_special=True)

    assert "".join(streamed(smollm2, ids, skip=True)) == "Hi"
    assert "".join(streamed(smollm2, ids, skip=False)) == "<|im_start|>Hi<|im_end|>"


def test_only_the_first_space_of_a_text_is_dropped(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("hello world  hello", add_special_tokens=True, parse_special=False)

    chunks = streamed(sentencepiece, ids, skip=True)

    assert "".join(chunks) == "hello world  hello"
    assert sentencepiece.token_text(ids[1]) == " hello"


def test_ids_beyond_the_tokeniser_have_no_text(smollm2: Tokenizer) -> None:
    detokenizer = Detokenizer(smollm2, skip_special_tokens=True)

    assert detokenizer.add(smollm2.vocab_size + 7) == ""
    assert detokenizer.num_complete == 1


@given(ids=st.lists(st.integers(0, 5), max_size=12))
@thoroughly
def test_metaspace_tokens_stream_as_they_decode(ids: list[int]) -> None:
    tokenizer = _with_decoder(["a", "▁a", "▁", "▁▁b▁", "é", "b"], decoders.Metaspace())

    assert "".join(streamed(tokenizer, ids, skip=True)) == tokenizer.decode(
        ids, skip_special_tokens=True
    )


def test_a_decoder_that_cannot_stream_is_named() -> None:
    tokenizer = _with_decoder(["a"], decoders.WordPiece())

    with pytest.raises(UnsupportedDecoderError, match="WordPiece"):
        Detokenizer(tokenizer, skip_special_tokens=True)


def test_every_part_of_an_unknown_sequence_is_looked_at() -> None:
    strange = decoders.Sequence([decoders.ByteFallback(), decoders.Replace("a", "b")])

    with pytest.raises(UnsupportedDecoderError, match="Replace"):
        _ = _with_decoder(["a"], strange).decoding


def test_a_long_answer_costs_the_same_per_token_at_its_end(smollm2: Tokenizer) -> None:
    # Work is counted in pieces looked at, not in seconds: one per token, however long the answer.
    looked_up: list[int] = []

    class Counting(Tokenizer):
        def piece(self, token_id: int) -> bytes | str:
            looked_up.append(token_id)
            return smollm2.piece(token_id)

    counting = Counting(_parts(Backend(models.BPE()), decoders.ByteLevel()), "")
    ids = smollm2.encode(EMOJI * 200, add_special_tokens=False, parse_special=False)[:8000]

    text = "".join(streamed(counting, ids, skip=True))

    assert text == smollm2.decode(ids, skip_special_tokens=True)
    assert looked_up == ids


def _with_decoder(tokens: list[str], decoder: decoders.Decoder) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return Tokenizer(_parts(Backend(models.WordLevel(vocabulary, "a")), decoder), "")


def _parts(backend: Backend, decoder: decoders.Decoder) -> TokenizerParts:
    backend.add_special_tokens(["<e>"])
    backend.decoder = decoder
    assert json.loads(backend.to_str())["decoder"] is not None
    return TokenizerParts(backend, None, None, (), (), (), {})
