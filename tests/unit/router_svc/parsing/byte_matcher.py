"""Follows a grammar with llguidance over a vocabulary of bytes and some control tokens.

Every text has one tokenisation, so that what the grammar says of tokens it says of text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from functools import cache

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

END = 256


class _Bytes:
    """What TokenizerWrapper asks for."""

    bos_token_id = None
    eos_token_id = END

    def __init__(self, control_tokens: Sequence[str]) -> None:
        texts = ["<end>", *control_tokens]
        self.tokens = [bytes([i]) for i in range(256)] + [text.encode() for text in texts]
        self.special_token_ids = list(range(END, len(self.tokens)))

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _tokenizer(control_tokens: tuple[str, ...]) -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Bytes(control_tokens)))


class ByteMatcher:
    """Says which texts a grammar accepts, and writes some."""

    def __init__(self, grammar: str, control_tokens: Iterable[str] = ()) -> None:
        self.control_ids = control_ids(control_tokens)
        self._matcher = LLMatcher(_tokenizer(tuple(self.control_ids)), grammar, log_level=0)
        assert not self._matcher.is_error(), self._matcher.get_error()

    def accepts(self, text: str) -> bool:
        """Whether `text` is a whole answer."""
        ids = self._encode(text)
        matcher = self._matcher.deep_copy()
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    def begins(self, text: str) -> bool:
        """Whether an answer may begin with `text`."""
        ids = self._encode(text)
        return self._matcher.deep_copy().try_consume_tokens(ids) == len(ids)

    def write(self, seed: int, length: int = 2000) -> str:
        """An answer without control tokens, each byte drawn from those that the grammar allows."""
        dice = random.Random(seed)
        matcher = self._matcher.deep_copy()
        written: list[int] = []
        while len(written) < length:
            mask = matcher.compute_bitmask()
            allowed = {i for i in range(END + 1) if mask[i // 8] >> (i % 8) & 1}
            if END in allowed and (len(allowed) == 1 or dice.random() < 0.5):
                break
            # ASCII where there is a choice, so that bytes are text; often what closes something.
            closing = sorted(allowed & {*b'"}])'})
            ascii_only = sorted(allowed & {9, 10, *range(32, 127)})
            likely = closing if closing and dice.random() < 0.3 else ascii_only
            drawn = dice.choice(likely or sorted(allowed - {END}))
            assert matcher.consume_token(drawn)
            written.append(drawn)
        return bytes(written).decode()

    def _encode(self, text: str) -> list[int]:
        if not self.control_ids:
            return list(text.encode())
        ids: list[int] = []
        for piece in re.split(f"({'|'.join(map(re.escape, self.control_ids))})", text):
            ids += [self.control_ids[piece]] if piece in self.control_ids else piece.encode()
        return ids


def control_ids(control_tokens: Iterable[str]) -> dict[str, int]:
    """Ids that a ByteMatcher gives to control tokens."""
    return {text: END + 1 + i for i, text in enumerate(control_tokens)}
