"""A tokeniser small enough to know by heart: every byte, some longer tokens, and control tokens."""

from __future__ import annotations

from pathlib import Path

import orjson
from tokenizers import pre_tokenizers

# Ids 0 to 255 are the bytes, in the order of GPT-2's alphabet; use `ids_of` for texts of them.
WORDS = ("true", '":', '{"', "ab", "abc")
SPECIAL = ("<end>", "<turn>", "<pad>")
ADDED = "<call>"  # text, though it looks like a control token
END, TURN = 256 + len(WORDS), 257 + len(WORDS)
VOCAB_SIZE = 256 + len(WORDS) + len(SPECIAL) + 1


def write_byte_tokenizer(directory: Path) -> Path:
    """Writes a tokenizer.json; returns the directory."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate((*alphabet, *WORDS))}
    first = len(vocab)
    added = [
        {"id": first + i, "content": text, "special": text != ADDED}
        for i, text in enumerate((*SPECIAL, ADDED))
    ]
    content = {
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
        "added_tokens": added,
        "decoder": {"type": "ByteLevel"},
    }
    (directory / "tokenizer.json").write_bytes(orjson.dumps(content))
    return directory


_NAMES = {" ": "Ġ", "\n": "Ċ"}  # of the ASCII characters that tests use and that have others


def ids_of(text: str) -> list[int]:
    """The tokens of an ASCII text, a byte each."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [alphabet.index(_NAMES.get(character, character)) for character in text]


def text_of(token_ids: list[int]) -> str:
    """What ASCII tokens stand for, words among them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = (*alphabet, *WORDS)
    text = "".join(pieces[i] for i in token_ids if i < len(pieces))
    return text.replace("Ġ", " ").replace("Ċ", "\n")
