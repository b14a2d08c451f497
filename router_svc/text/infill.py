"""Prompts that have a model fill a gap between two texts.

Models trained for it ("Efficient Training of Language Models to Fill in the Middle", 2022) have
control tokens for it, which name their family:

    prefix first   <prefix> before <suffix> after <middle>      the answer is what comes between
    suffix first   <suffix> after <prefix> before
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router_svc.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Family:
    """A family's control tokens; without a middle the suffix comes first."""

    prefix: str
    suffix: str
    middle: str = ""
    ends: tuple[str, ...] = ()  # end an answer, besides the model's own


_FAMILIES = (
    # Qwen 2.5 Coder, CodeGemma; the latter has no padding token.
    _Family("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", ("<|fim_pad|>", "<|file_sep|>")),
    # StarCoder, StarCoder 2, Granite Code.
    _Family("<fim_prefix>", "<fim_suffix>", "<fim_middle>", ("<fim_pad>", "<file_sep>")),
    _Family("<fim-prefix>", "<fim-suffix>", "<fim-middle>", ("<fim-pad>",)),  # SantaCoder
    _Family("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek Coder
    _Family("▁<PRE>", "▁<SUF>", "▁<MID>", ("▁<EOT>",)),  # Code Llama
    _Family("[PREFIX]", "[SUFFIX]"),  # Codestral
)


@dataclass(frozen=True, slots=True)
class Infill:
    """A model's control tokens for infilling; without a middle the suffix comes first."""

    prefix_id: int
    suffix_id: int
    middle_id: int | None
    end_ids: tuple[int, ...]  # end an answer, besides the model's own

    def prompt(self, before: Sequence[int], after: Sequence[int]) -> list[int]:
        """The prompt whose continuation stands between two texts, both without special tokens."""
        if self.middle_id is None:
            return [self.suffix_id, *after, self.prefix_id, *before]
        return [self.prefix_id, *before, self.suffix_id, *after, self.middle_id]


def infill_of(tokenizer: Tokenizer) -> Infill | None:
    """The infilling tokens of a model's tokeniser; None if it has none that are known."""
    for family in _FAMILIES:
        prefix, suffix = _id(tokenizer, family.prefix), _id(tokenizer, family.suffix)
        middle = _id(tokenizer, family.middle) if family.middle else None
        if prefix is None or suffix is None or (family.middle and middle is None):
            continue
        ends = tuple(i for end in family.ends if (i := _id(tokenizer, end)) is not None)
        return Infill(prefix, suffix, middle, ends)
    return None


def _id(tokenizer: Tokenizer, literal: str) -> int | None:
    return tokenizer.special_ids((literal,)).get(literal)
