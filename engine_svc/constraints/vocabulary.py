"""The bytes that each token stands for, which is all that a grammar needs of a tokeniser.

    tokenizer.json    model.vocab, with added_tokens over it; the decoder says how texts are spelt
    GGUF              tokenizer.ggml.tokens, with token_type beside it

    byte-level        each character of a token stands for a byte: "Ġthe" is " the"
    SentencePiece     "▁the" is " the", "<0x0A>" is a byte

Tokens that control the model (special, control, unknown, unused) have a name instead of bytes: no
text is ever made of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from octavo.gguf_metadata import GgufError, read_gguf_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from octavo.gguf_metadata import GgufValue

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "▁"
# tokenizer.ggml.token_type
_NORMAL, _USER_DEFINED, _BYTE_TYPE = 1, 4, 6


class VocabularyError(ValueError):
    """A tokeniser whose tokens cannot be told as bytes."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id: bytes, or for the ids in `special_ids` names. An id without a token has b""."""

    tokens: list[bytes]
    special_ids: list[int]


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a model directory or GGUF file. Raises VocabularyError and OSError."""
    if path.is_dir() and not (path / "tokenizer.json").is_file():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise VocabularyError("the model has no tokenizer.json")
        (path,) = files
    if path.is_dir():
        return _from_tokenizer_json(path / "tokenizer.json")
    try:
        return _from_gguf(read_gguf_head(path).metadata)
    except GgufError as error:
        raise VocabularyError(str(error)) from error


def _from_tokenizer_json(path: Path) -> Vocabulary:
    try:
        content = orjson.loads(path.read_bytes())
        vocab, added = content["model"]["vocab"], content.get("added_tokens") or []
        ids = vocab if isinstance(vocab, dict) else {entry[0]: i for i, entry in enumerate(vocab)}
        to_bytes = _spelling(content.get("decoder"))
        size = max((*ids.values(), *(token["id"] for token in added)), default=-1) + 1
        tokens = [b""] * size
        for text, token_id in ids.items():
            tokens[token_id] = to_bytes(text)
        for token in added:
            tokens[token["id"]] = token["content"].encode()
        special = [token["id"] for token in added if token.get("special")]
    except (AttributeError, IndexError, KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise VocabularyError(f"{path.name} is not laid out as a tokeniser: {error!r}") from error
    return Vocabulary(tokens, special)


def _spelling(decoder: Mapping[str, Any] | None) -> Callable[[str], bytes]:
    """How the decoder of a tokenizer.json has tokens spelt."""
    parts = list(_parts(decoder))
    kinds = {str(part["type"]) for part in parts}
    if "ByteLevel" in kinds:
        return _byte_level
    if kinds & {"ByteFallback", "Metaspace"} or any(part.get("content") == " " for part in parts):
        return _sentencepiece
    raise VocabularyError(f"a tokeniser with the decoders {sorted(kinds)} cannot be told as bytes")


def _parts(decoder: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if decoder is None:
        return
    if decoder["type"] == "Sequence":
        for part in decoder["decoders"]:
            yield from _parts(part)
    else:
        yield decoder


def _from_gguf(metadata: Mapping[str, GgufValue]) -> Vocabulary:
    texts, types = (metadata.get(f"tokenizer.ggml.{key}") for key in ("tokens", "token_type"))
    kind = metadata.get("tokenizer.ggml.model")
    spellings = {"gpt2": _byte_level, "llama": _sentencepiece}
    if not isinstance(kind, str) or kind not in spellings:
        raise VocabularyError(f"a tokeniser of the kind {kind!r} cannot be told as bytes")
    if not isinstance(texts, list) or not isinstance(types, list) or len(texts) != len(types):
        raise VocabularyError("the metadata lacks tokens, or their types")
    to_bytes = spellings[kind]
    tokens, special = [], []
    for token_id, (text, token_type) in enumerate(zip(map(str, texts), types, strict=True)):
        literal = token_type not in (_NORMAL, _BYTE_TYPE)
        tokens.append(text.encode() if literal else to_bytes(text))
        if literal and token_type != _USER_DEFINED:
            special.append(token_id)
    return Vocabulary(tokens, special)


def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 characters are themselves, other bytes follow U+00FF."""
    same = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in same]
    return {chr(byte): byte for byte in same} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_of_character()


def _byte_level(text: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in text])
    except KeyError:  # a token from outside the alphabet, which is then its own text
        return text.encode()


def _sentencepiece(text: str) -> bytes:
    if byte := _BYTE.fullmatch(text):
        return bytes([int(byte[1], 16)])
    return text.replace(_SPACE, " ").encode()
