"""What one token contributes to a text, read off a tokeniser's decoder.

Every decoder that language models use is one of three:

    byte level     a token is bytes, each written as one printable character (GPT-2's alphabet);
                   the bytes of all tokens together are UTF-8
    byte fallback  a token is text with "▁" for a space, or one byte written <0xE2>; a run of byte
                   tokens is UTF-8 as a whole or not at all; some drop the text's first space
    metaspace      a token is text with "▁" for a space; the first token has none
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class DecoderKind(Enum):
    """The three kinds of decoder."""

    BYTE_LEVEL = "byte level"
    BYTE_FALLBACK = "byte fallback"
    METASPACE = "metaspace"


class UnsupportedDecoderError(ValueError):
    """The tokeniser's decoder is none that text can be streamed through."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """A tokeniser's decoder.

    `replacements` apply to a token's text in order. `num_stripped` is the number of spaces dropped
    from the beginning of the whole text; `bare_first` drops every space of the first token.
    """

    kind: DecoderKind
    replacements: tuple[tuple[str, str], ...] = ()
    num_stripped: int = 0
    bare_first: bool = False

    def piece(self, token: str) -> bytes | str:
        """What the token stands for: text, or bytes that are text only together with others."""
        if self.kind is DecoderKind.BYTE_LEVEL:
            try:
                return bytes([_BYTE_OF[character] for character in token])
            except KeyError:
                return token.encode()  # an added token outside the alphabet stands for itself
        if self.kind is DecoderKind.BYTE_FALLBACK and (byte := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        for old, new in self.replacements:
            token = token.replace(old, new)
        return token


def decoding_of(decoder: Any) -> Decoding:
    """Reads a decoder as tokenizer.json writes it.

    Raises UnsupportedDecoderError, naming the part, for one that is not of the three kinds.
    """
    if not isinstance(decoder, dict):
        raise UnsupportedDecoderError("the tokeniser has no decoder")
    match decoder:
        case {"type": "ByteLevel"}:
            return Decoding(DecoderKind.BYTE_LEVEL)
        case {"type": "Metaspace", "replacement": str(mark)}:
            bare_first = decoder.get("prepend_scheme", "always") != "never"
            return Decoding(DecoderKind.METASPACE, ((mark, " "),), bare_first=bare_first)
        case {"type": "Sequence", "decoders": [only]}:
            return decoding_of(only)
        case {"type": "Sequence", "decoders": list(parts)}:
            return _byte_fallback(parts)
    raise UnsupportedDecoderError(f"the tokeniser's decoder {decoder.get('type')} is not supported")


def _byte_fallback(parts: list[Any]) -> Decoding:
    replacements: list[tuple[str, str]] = []
    num_stripped = 0
    done: list[str] = []
    for part in parts:
        match part:
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if (
                "ByteFallback" not in done
            ):
                replacements.append((old, new))
            case {"type": "ByteFallback" | "Fuse"}:
                pass
            case {"type": "Strip", "content": " ", "start": int(start), "stop": 0} if (
                "Fuse" in done
            ):
                num_stripped += start
            case _:
                raise UnsupportedDecoderError(
                    f"the tokeniser's decoder has an unsupported part: {part}"
                )
        done.append(part["type"])
    if "ByteFallback" not in done:
        raise UnsupportedDecoderError("the tokeniser's decoder turns no tokens into bytes")
    return Decoding(DecoderKind.BYTE_FALLBACK, tuple(replacements), num_stripped)


def _byte_alphabet() -> dict[str, int]:
    # GPT-2's alphabet: printable Latin-1 stands for itself, the rest follows from U+0100 on.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in alphabet.values())
    alphabet.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return alphabet


_BYTE_OF = _byte_alphabet()
