"""Turns ids into text as they come: each piece is final, together they are the decoded text.

    ids     ▁Hi   <0xF0> <0x9F> <0x98>   <0x80>   !
    text    "Hi"  ""     ""     ""       ""       "😀!"      with byte fallback: a run ends first
    ids     Hi    Ġðŀ    ĺĢ     !
    text    "Hi"  " "    "😀"   "!"                          with byte-level tokens

A piece is held back only while tokens to come may still change it: bytes of an unfinished
character, and, with byte fallback, a run of byte tokens, which is valid UTF-8 as a whole or shows
as U+FFFD.
"""

from __future__ import annotations

import codecs
from collections import deque
from typing import TYPE_CHECKING

from router_svc.text.pieces import DecoderKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router_svc.text.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"


class Detokenizer:
    """Text of one answer, token by token.

    `shown` are special tokens that have text all the same. `prefix` are ids that came before: their
    text is not given again, but what is left of it (an unfinished character) goes on.
    `num_complete` counts the tokens added, in order, whose text is complete. Ids without a token
    have no text. Takes linear time.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool,
        shown: frozenset[int] = frozenset(),
        prefix: Iterable[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special_tokens
        self._shown = shown
        decoding = tokenizer.decoding
        self._bytes: _ByteLevel | _ByteFallback = (
            _ByteLevel() if decoding.kind is DecoderKind.BYTE_LEVEL else _ByteFallback()
        )
        self._spaces_to_strip = decoding.num_stripped
        self._bare_next = decoding.bare_first
        # Bytes fed when each token whose text is not yet complete had been fed.
        self._ends: deque[int] = deque()
        self._num_fed = 0
        self.num_complete = 0
        for token_id in prefix:
            self.add(token_id)
        self.num_complete = -len(self._ends)

    def add(self, token_id: int) -> str:
        """The text that is final with this token."""
        piece = self._piece(token_id)
        text = self._bytes.feed(piece) if piece else ""
        self._num_fed += len(piece)
        if not self._ends and not self._bytes.num_held:  # as of nearly every token
            self.num_complete += 1
            return self._stripped(text) if self._spaces_to_strip else text
        self._ends.append(self._num_fed)
        final = self._num_fed - self._bytes.num_held
        while self._ends and self._ends[0] <= final:
            self._ends.popleft()
            self.num_complete += 1
        return self._stripped(text)

    def flush(self) -> str:
        """The rest, at the end: an unfinished character shows as U+FFFD."""
        self.num_complete += len(self._ends)
        self._ends.clear()
        return self._stripped(self._bytes.flush())

    def _piece(self, token_id: int) -> bytes | str:
        hidden = self._skip_special and self._tokenizer.is_special(token_id)
        if hidden and token_id not in self._shown:
            return ""
        piece = self._tokenizer.piece(token_id)
        if self._bare_next:
            self._bare_next = False
            return piece.replace(b" ", b"") if isinstance(piece, bytes) else piece.replace(" ", "")
        return piece

    def _stripped(self, text: str) -> str:
        while self._spaces_to_strip and text:
            if text[0] != " ":
                self._spaces_to_strip = 0
                break
            text = text[1:]
            self._spaces_to_strip -= 1
        return text


class _ByteLevel:
    """All bytes are one stream of UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.num_held = 0

    def feed(self, piece: bytes | str) -> str:
        if not self.num_held and piece.isascii():  # the decoder would be asked twice for nothing
            return piece if isinstance(piece, str) else piece.decode()
        text = self._decoder.decode(piece.encode() if isinstance(piece, str) else piece)
        self.num_held = len(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        self.num_held = 0
        return self._decoder.decode(b"", final=True)


class _ByteFallback:
    """Text, and runs of bytes that are UTF-8 as a whole or not at all."""

    def __init__(self) -> None:
        self._run = bytearray()

    @property
    def num_held(self) -> int:
        return len(self._run)

    def feed(self, piece: bytes | str) -> str:
        if isinstance(piece, bytes):
            self._run += piece
            return ""
        return self.flush() + piece

    def flush(self) -> str:
        run, self._run = self._run, bytearray()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return _REPLACEMENT * len(run)
