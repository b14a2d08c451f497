"""What a tokeniser is made of, wherever it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TokenizerError(ValueError):
    """A tokeniser that cannot be loaded; the message names the file."""


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """What stands around the two texts of a pair.

        prefix  first text  middle  second text  suffix
        └ first segment ───────┘                              of `middle_in_first` middle tokens

    Without `has_segments` all tokens are in the first segment.
    """

    prefix_ids: tuple[int, ...]
    middle_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    has_segments: bool
    middle_in_first: int

    @property
    def num_added(self) -> int:
        """Tokens beside those of the two texts."""
        return len(self.prefix_ids) + len(self.middle_ids) + len(self.suffix_ids)


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """A tokeniser with what the model says about its use.

    `prefix_ids` and `suffix_ids` stand around a text that special tokens are added to, `pair` does
    around two; `end_ids` end an answer; `special_texts` names special tokens as chat templates do
    ("bos_token" …).
    """

    backend: Tokenizer
    bos_id: int | None
    eos_id: int | None
    end_ids: tuple[int, ...]
    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    special_texts: dict[str, str]
    pair: PairTemplate | None = None
