"""A GGUF file's tokeniser is the model's own, and its metadata has the last word."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from router_svc.text.tokenizer import Tokenizer
from router_svc.text.tokenizer_parts import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


SCRIPTS = [
    "abcdefghijklmnopqrstuvwxyz ABC",
    "  \n\t\r",
    "éèüß ñ'sn't",
    "访问中文字符日本語テスト",
    "😀👩‍👩‍👧‍👦🇨🇿👍🏽",
    "0123456789",
    "<>|_[]{}().,!?",
    "àб цdжз",
    "\u200b\u0301𐍈\x00\x7f",
]


@pytest.fixture(scope="module")
def from_gguf(smollm2_gguf: Path) -> Tokenizer:
    return Tokenizer.load(smollm2_gguf)


def random_texts(count: int) -> list[str]:
    generator = random.Random(20)
    return [
        "".join(
            generator.choice(generator.choice(SCRIPTS)) for _ in range(generator.randint(0, 60))
        )
        for _ in range(count)
    ]


def ids_of(tokenizer: Tokenizer, text: str, **flags: bool) -> list[int]:
    return tokenizer.encode(text, **{"add_special_tokens": True, "parse_special": True, **flags})


def test_ids_are_those_of_the_models_own_tokeniser(
    from_gguf: Tokenizer, smollm2: Tokenizer
) -> None:
    texts = [*random_texts(1000), "<|im_start|>user\nHi<|im_end|>", "12345 it's I'LL <repo_name>"]

    assert [t for t in texts if ids_of(from_gguf, t) != ids_of(smollm2, t)] == []


def test_what_the_metadata_says_is_known(from_gguf: Tokenizer) -> None:
    assert (from_gguf.bos_id, from_gguf.eos_id, from_gguf.end_ids) == (1, 2, (2,))
    assert from_gguf.special_texts["eos_token"] == "<|im_end|>"
    assert len(from_gguf.special_literals) == 17
    assert from_gguf.vocab_size == 49152


@pytest.mark.parametrize(("add_bos", "starts"), [(True, True), (False, False), (None, True)])
def test_the_flag_says_whether_a_text_begins_with_bos(
    write_sentencepiece_gguf: Callable[..., Path],
    tmp_path: Path,
    add_bos: bool | None,
    starts: bool,
) -> None:
    settings_ = {} if add_bos is None else {"add_bos": add_bos}
    tokenizer = Tokenizer.load(write_sentencepiece_gguf(tmp_path / "m.gguf", **settings_))

    assert (ids_of(tokenizer, "hello")[0] == tokenizer.bos_id) is starts


def test_the_metadatas_end_token_wins(
    write_sentencepiece_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(write_sentencepiece_gguf(tmp_path / "m.gguf", eos=1))

    assert (tokenizer.eos_id, tokenizer.end_ids) == (1, (1,))
    assert tokenizer.special_texts["eos_token"] == "<s>"


def test_user_defined_tokens_are_found_in_any_text_and_are_not_special(
    sentencepiece: Tokenizer,
) -> None:
    ids = ids_of(sentencepiece, "<tool>", parse_special=False, add_special_tokens=False)

    assert [sentencepiece.token_text(i) for i in ids] == ["<tool>"]
    assert not sentencepiece.is_special(ids[0])
    assert ids_of(sentencepiece, "</s>", parse_special=False, add_special_tokens=False) != [2]


def test_without_a_space_prefix_texts_begin_as_they_are(
    write_sentencepiece_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_sentencepiece_gguf(tmp_path / "m.gguf", add_space_prefix=False)
    tokenizer = Tokenizer.load(path)
    ids = ids_of(tokenizer, "hello", add_special_tokens=False)

    assert [tokenizer.token_text(i) for i in ids] == ["hello"]
    assert tokenizer.decode(ids_of(tokenizer, " hello"), skip_special_tokens=True) == " hello"


@given(text=st.text("helo wrdthé!x😀", max_size=30))
@settings(max_examples=500)
def test_pieces_are_joined_as_sentencepiece_joins_them(
    sentencepiece: Tokenizer, piece_scores: dict[str, float], text: str
) -> None:
    ids = ids_of(sentencepiece, text, parse_special=False, add_special_tokens=False)

    assert [sentencepiece.piece(i) for i in ids] == sentencepiece_reference(text, piece_scores)


def sentencepiece_reference(text: str, scores: dict[str, float]) -> list[str | bytes]:
    """SentencePiece's BPE, read literally: join the best-scored neighbours, leftmost first."""
    characters = set("▁é.,!") | set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    result: list[str | bytes] = []
    for i, part in enumerate(text.split("   ")):  # three spaces are a token of their own
        result += ["   "] if i else []
        symbols = list(f"▁{part}".replace(" ", "▁")) if part else []
        while True:
            joined = [
                (scores.get(left + right), -i) for i, (left, right) in enumerate(pairwise(symbols))
            ]
            best = max((j for j in joined if j[0] is not None), default=None)
            if best is None:
                break
            at = -best[1]
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        for symbol in symbols:
            if len(symbol) > 1 or symbol in characters:
                result.append(symbol.replace("▁", " "))
            else:
                result += [bytes([byte]) for byte in symbol.encode()]
    return result


def write_byte_level(path: Path, **values: Any) -> Path:
    """A GGUF with a byte-level tokeniser of a few tokens, without the keys given as None."""
    content = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": ["a", "b", "Ġ", "1", "2", "12", "ab", "<e>"],
        "token_type": [1, 1, 1, 1, 1, 1, 1, 3],
        "merges": ["1 2", "a b"],
        "eos_token_id": 7,
        **values,
    }
    writer = GGUFWriter(path, "llama")
    for key, value in content.items():
        match value:
            case str():
                writer.add_string(f"tokenizer.ggml.{key}", value)
            case bool():
                writer.add_bool(f"tokenizer.ggml.{key}", value)
            case int():
                writer.add_uint32(f"tokenizer.ggml.{key}", value)
            case list():
                writer.add_array(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["12", "12"]),
        ("default", ["12", "12"]),
        ("smollm", ["1", "2", "1", "2"]),
        ("qwen2", ["1", "2", "1", "2"]),
        ("llama-bpe", ["12", "1", "2"]),
        ("tekken", ["1", "2", "1", "2"]),
        ("gpt-4o", ["12", "1", "2"]),
    ],
)
def test_the_pre_tokeniser_decides_how_digits_are_cut(
    tmp_path: Path, pre: str, expected: list[str]
) -> None:
    tokenizer = Tokenizer.load(write_byte_level(tmp_path / "m.gguf", pre=pre))

    ids = ids_of(tokenizer, "1212", add_special_tokens=False)

    assert [tokenizer.token_text(i) for i in ids] == expected


def test_an_unknown_pre_tokeniser_is_refused_by_name(tmp_path: Path) -> None:
    path = write_byte_level(tmp_path / "m.gguf", pre="marsian")

    with pytest.raises(TokenizerError, match=r"m\.gguf .*'marsian' \(tokenizer\.ggml\.pre\)"):
        Tokenizer.load(path)


def test_an_unknown_kind_of_tokeniser_is_refused_by_name(
    write_sentencepiece_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_sentencepiece_gguf(tmp_path / "m.gguf", model="bert")

    with pytest.raises(TokenizerError, match=r"'bert' \(tokenizer\.ggml\.model\)"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tokens": None}, r"no tokenizer\.ggml\.tokens"),
        ({"token_type": [1, 1]}, r"2 tokenizer\.ggml\.token_type for 8 tokens"),
        ({"merges": [1, 2]}, r"tokenizer\.ggml\.merges that is no list of str"),
        ({"eos_token_id": 8}, r"eos_token_id 8, but its vocabulary has 8 tokens"),
        ({"add_bos_token": 1, "bos_token_id": 7}, r"add_bos_token of the type int"),
        ({"tokens": ["a"] * 8}, "the token 'a' twice"),
        ({"merges": ["a z"]}, "merges"),
    ],
)
def test_inconsistent_metadata_is_refused_by_key(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    path = write_byte_level(tmp_path / "m.gguf", **values)

    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(path)
