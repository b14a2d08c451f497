"""The bytes of tokens, beside what the tokenisers' own library makes of them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tokenizers import Tokenizer

from engine_svc.constraints.vocabulary import VocabularyError, read_vocabulary
from router_svc.text.gguf_tokenizer import load_gguf_tokenizer
from tests.support.byte_tokenizer import ADDED, END, VOCAB_SIZE, write_byte_tokenizer

TEXTS = [
    "The quick brown fox jumps over 13 lazy dogs.\n\n\tdef f(x): return {'a': [x]}",
    "naïve façade — żółć 日本語テキスト 😀👩‍👩‍👧 עברית \u200b end",
    " leading and trailing  ",
]


def texts_back(tokens: list[bytes], tokenizer: Tokenizer) -> list[str]:
    """The texts, encoded by the library and put together from the tokens' bytes."""
    return [
        b"".join(tokens[i] for i in tokenizer.encode(text, add_special_tokens=False).ids).decode()
        for text in TEXTS
    ]


def test_a_byte_level_tokeniser(smollm2_checkpoint: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_checkpoint / "tokenizer.json"))

    vocabulary = read_vocabulary(smollm2_checkpoint)

    assert len(vocabulary.tokens) == tokenizer.get_vocab_size()
    for token_id, token in enumerate(vocabulary.tokens):
        decoded = tokenizer.decode([token_id], skip_special_tokens=False)
        assert token.decode(errors="replace") == decoded
    assert texts_back(vocabulary.tokens, tokenizer) == TEXTS
    control = [i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special]
    assert sorted(vocabulary.special_ids) == sorted(control)


def test_a_gguf_file_has_the_vocabulary_of_its_checkpoint(
    smollm2_checkpoint: Path, smollm2_gguf: Path
) -> None:
    from_gguf, from_json = read_vocabulary(smollm2_gguf), read_vocabulary(smollm2_checkpoint)

    assert from_gguf.tokens == from_json.tokens
    assert sorted(from_gguf.special_ids) == sorted(from_json.special_ids)


def test_a_sentencepiece_tokeniser(gemma3_gguf: Path) -> None:
    tokenizer = load_gguf_tokenizer(gemma3_gguf).backend

    vocabulary = read_vocabulary(gemma3_gguf)

    assert len(vocabulary.tokens) == tokenizer.get_vocab_size()
    assert texts_back(vocabulary.tokens, tokenizer) == TEXTS
    assert vocabulary.tokens[tokenizer.token_to_id("<0x0A>")] == b"\n"
    assert {0, 1, 2} <= set(vocabulary.special_ids)  # <pad>, <eos>, <bos>


def test_added_tokens_are_their_own_text_and_only_special_ones_are_not_text(tmp_path: Path) -> None:
    vocabulary = read_vocabulary(write_byte_tokenizer(tmp_path))

    assert len(vocabulary.tokens) == VOCAB_SIZE
    assert vocabulary.tokens[-1] == ADDED.encode()
    assert vocabulary.special_ids == [END, END + 1, END + 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "tokenizer.json"),
        (b"[]", "tokenizer.json"),
        (b'{"model": {}}', "vocab"),
        (orjson.dumps({"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}}), "WordPie"),
    ],
)
def test_what_is_no_such_tokeniser_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)

    with pytest.raises(VocabularyError, match=words):
        read_vocabulary(tmp_path)


def test_a_directory_without_a_tokeniser_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"no tokenizer\.json"):
        read_vocabulary(tmp_path)
