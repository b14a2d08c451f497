"""Texts as an encoder's inputs: special tokens around one or two of them, and cut where asked.

What is cut is the texts' ends, never the special tokens; of a pair, the longer text gives up tokens
until both fit, as the tokenizers library does it ("longest first").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.engines.encoder_types import EncoderInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router_svc.text.tokenizer import Tokenizer
    from router_svc.text.tokenizer_parts import PairTemplate


class TooShortError(ValueError):
    """The tokens to keep are fewer than the special ones; the message has both numbers."""


def text_input(
    tokenizer: Tokenizer, text: str, *, kept: int | None, add_special_tokens: bool = True
) -> EncoderInput:
    """One text, as its first `kept` tokens. Raises TooShortError, and ValueError as encode does."""
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=True)
    if not add_special_tokens:
        return EncoderInput(ids[:kept])
    if kept is None:
        return EncoderInput(tokenizer.around(ids))
    return EncoderInput(tokenizer.around(ids[: _room(kept, tokenizer.num_around)]))


def pair_input(
    tokenizer: Tokenizer, pair: PairTemplate, first: str, second: str, *, kept: int | None
) -> EncoderInput:
    """Two texts, in at most `kept` tokens. Raises as text_input does."""
    a: Sequence[int] = tokenizer.encode(first, add_special_tokens=False, parse_special=True)
    b: Sequence[int] = tokenizer.encode(second, add_special_tokens=False, parse_special=True)
    if kept is not None:
        a, b = _longest_first(a, b, _room(kept, pair.num_added))
    ids = [*pair.prefix_ids, *a, *pair.middle_ids, *b, *pair.suffix_ids]
    if not pair.has_segments:
        return EncoderInput(ids)
    return EncoderInput(ids, len(pair.prefix_ids) + len(a) + pair.middle_in_first)


def _room(kept: int, num_special: int) -> int:
    if kept < num_special:
        raise TooShortError(
            f"{kept} tokens have no room for the {num_special} special tokens of an input"
        )
    return kept - num_special


def _longest_first(
    a: Sequence[int], b: Sequence[int], room: int
) -> tuple[Sequence[int], Sequence[int]]:
    short, long = sorted((len(a), len(b)))
    if short + long <= room:
        return a, b
    # The longer one shrinks to the shorter one's length, then both together.
    smaller = min(short, room // 2)
    larger = room - smaller
    return (a[:smaller], b[:larger]) if len(a) <= len(b) else (a[:larger], b[:smaller])
