"""Guesses at what a request says next, from where it said the same before (prompt lookup).

    tokens    … the quick brown fox … the quick ?          `min_match` 2
                    └───┬───┘             └───┬───┘
                   same n-gram, and so "brown fox …" is the guess

Of the latest places where the last `min_match` tokens stood before, the one with the longest match
wins, the latest among equals. The index grows with the request: a token costs one entry, a guess
looks at a few places, and neither depends on the length of the context.

Saxena, "Prompt Lookup Decoding" (2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_PLACES = 16  # that one guess compares


class NgramIndex:
    """The n-grams of one request's tokens."""

    def __init__(self, min_match: int, max_match: int) -> None:
        """A match has at least `min_match` tokens; more than `max_match` do not make it better."""
        self._min = min_match
        self._max = max_match
        self._tokens: list[int] = []
        # Ends of n-grams that something follows: the latest of each, and the one before each.
        self._latest: dict[tuple[int, ...], int] = {}
        self._earlier: list[int] = []  # by end; 0 is none

    @property
    def num_tokens(self) -> int:
        """Tokens taken in so far."""
        return len(self._tokens)

    def extend(self, token_ids: Sequence[int]) -> None:
        """Takes in the request's next tokens."""
        tokens, latest, earlier, size = self._tokens, self._latest, self._earlier, self._min
        start = len(tokens)
        tokens += token_ids
        for end in range(start, len(tokens)):  # a token follows the n-gram that ends here
            if end < size:
                earlier.append(0)
                continue
            ngram = tuple(tokens[end - size : end])
            earlier.append(latest.get(ngram, 0))
            latest[ngram] = end

    def propose(self, count: int, count_if_short: int) -> tuple[int, ...]:
        """Tokens that are likely to follow: `count` after a match of full length, at most
        `count_if_short` after a shorter one, and none without.

        Where the place found is so near that its continuation meets the end, it is taken to repeat.
        """
        end, length = self._best_place()
        if end == 0:
            return ()
        if length < self._max:
            count = min(count, count_if_short)
        tokens = self._tokens
        period = len(tokens) - end
        return tuple(tokens[end + i % period] for i in range(count))

    def _best_place(self) -> tuple[int, int]:
        """The end of the best match and its length; zeros if there is none."""
        tokens = self._tokens
        place = self._latest.get(tuple(tokens[-self._min :]), 0)
        best, longest = 0, 0
        for _ in range(_MAX_PLACES):
            if place == 0 or longest == self._max:
                break
            length = self._match_length(place)
            if length > longest:
                best, longest = place, length
            place = self._earlier[place]
        return best, longest

    def _match_length(self, end: int) -> int:
        """How many tokens before `end` are as the last ones, known to be at least `min_match`."""
        tokens, length = self._tokens, self._min
        while (
            length < self._max and length < end and tokens[end - 1 - length] == tokens[-1 - length]
        ):
            length += 1
        return length
