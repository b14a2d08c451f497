"""A compiled grammar, and where one output is in it.

Grammar (one a constraint, shared)  ──new_matcher──▶  GrammarMatcher (one a choice)

tokens so far  ──consume──▶  state  ──fill──▶  mask: one bit a token, set if it may come next
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from octavo import grammars

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from llguidance import LLMatcher

    UInt32s = npt.NDArray[np.uint32]

# How a grammar ends by its own rules; whatever else stops a matcher is a limit that was hit.
_ENDS = ("NoExtension", "NoExtensionBias", "EndOfSentence")


class Grammar:
    """A constraint that compiled. Threads may share it."""

    def __init__(self, start: LLMatcher, num_tokens: int, end_ids: frozenset[int]) -> None:
        """`start` has consumed nothing and stays so; the tokeniser it was made with has
        `num_tokens` tokens, of which those in `end_ids` end an output."""
        self._start = start
        self._num_tokens = num_tokens
        self._ends = mask_of(end_ids, num_tokens)

    def new_matcher(self, output_token_ids: Sequence[int] = ()) -> GrammarMatcher:
        """A matcher for an output that begins with these tokens."""
        matcher = GrammarMatcher(self._start.deep_copy(), self._num_tokens, self._ends)
        for token_id in output_token_ids:
            matcher.consume(token_id)
        return matcher


class GrammarMatcher:
    """Where one output is in its grammar. Errors stay: see `error`."""

    def __init__(self, matcher: LLMatcher, num_tokens: int, ends: UInt32s) -> None:
        self._matcher = matcher
        self._num_bytes = 4 * num_words(num_tokens)
        self._ends = ends
        self._error: str | None = None

    @property
    def error(self) -> str | None:
        """Why no more tokens can be allowed, if that is so; the request must fail then."""
        return self._error

    @property
    def ended(self) -> bool:
        """Whether the output is complete and nothing may follow."""
        return self._error is None and self._matcher.is_stopped()

    def consume(self, token_id: int) -> None:
        """Takes a token of the output; one that is not allowed here is an error."""
        if self._error is None and not self._matcher.consume_token(token_id):
            self._check()
            self._error = self._error or "a token does not follow the grammar"
        else:
            self._check()

    def fill(self, mask: UInt32s, *, may_end: bool) -> None:
        """Writes which tokens may come next into a mask [num_words]; none after an error.

        Tokens that end the output are among them where the grammar allows its end and `may_end`,
        or where nothing else is allowed.
        """
        self.fill_after((), mask[None], may_end=may_end)

    def fill_after(self, guesses: Sequence[int], masks: UInt32s, *, may_end: bool) -> None:
        """Writes a mask [num_words] for the next token and one more after each guess.

        After a guess that is not allowed, or completes the output, no mask allows anything. masks
        is [1 + num_guesses, num_words], C-contiguous.
        """
        masks[:] = 0
        if self._error is not None:
            return
        taken = 0
        for row, guess in enumerate((*guesses, None)):
            mask = masks[row]
            self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, self._num_bytes)
            if not self._check():
                break
            if not may_end:
                self._clear_ends(mask[: self._ends.size])
            if guess is None or not mask[guess >> 5] >> (guess & 31) & 1:
                break
            self.consume(guess)
            taken += 1
            if self._error is not None or self._matcher.is_stopped():
                break
        if taken and self._error is None and not self._matcher.rollback(taken):
            self._check()
        if self._error is not None:
            masks[:] = 0

    def only_ends(self, mask: UInt32s) -> bool:
        """Whether a mask that this filled allows ends of the output alone."""
        own = mask[: self._ends.size]
        return bool(own.any()) and not (own & ~self._ends).any()

    def _clear_ends(self, mask: UInt32s) -> None:
        others = mask & ~self._ends
        if others.any():
            mask[:] = others

    def _check(self) -> bool:
        """False after an error of the matcher, of which this takes note: its masks then lie."""
        if self._error is None and self._matcher.is_stopped():
            reason = self._matcher.stop_reason()
            if self._matcher.is_error() or reason not in _ENDS:
                detail = grammars.reason(self._matcher.get_error() or str(reason))
                self._error = f"the output cannot be kept to its grammar: {detail}"
        return self._error is None


def num_words(num_tokens: int) -> int:
    """Words of 32 bits in a mask over so many tokens."""
    return -(-num_tokens // 32)


def mask_of(token_ids: frozenset[int], num_tokens: int) -> UInt32s:
    """A mask [num_words] with these tokens set; ids beyond num_tokens are left out."""
    mask = np.zeros(num_words(num_tokens), dtype=np.uint32)
    for token_id in token_ids:
        if token_id < num_tokens:
            mask[token_id >> 5] |= np.uint32(1 << (token_id & 31))
    return mask
