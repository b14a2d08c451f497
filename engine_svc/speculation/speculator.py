"""Which decoding requests get guesses to verify, and how many.

A step that decodes few tokens is bound by reading the weights, so it verifies some guesses for
nearly nothing: each row's token is picked as ever, with that row's own random number, and counts as
long as the guesses before it were right. So guesses change when tokens come, never which.

    known     … a b c        guess  d e f        the step computes  c d e f
    picked                                                          d e x y
    taken                                                           d e x        2 of 3 accepted

How many guesses a request gets follows from how the last ones fared: doubled after success, cut
after failure, none for a while after several failures in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_svc.speculation.ngram_index import NgramIndex

if TYPE_CHECKING:
    from engine_svc.scheduling.request import Request
    from engine_svc.speculation.config import SpeculationConfig

# Chosen by replaying answers of a small model against the measured cost of more rows in a step.
_GUESSES_IF_UNSURE = 2  # after a match that is shorter than the longest sought
_FIRST_PAUSE = 2  # tokens without guesses; doubled each time that guessing fails again
_LONGEST_PAUSE = 16


@dataclass(slots=True)
class _State:
    """What guessing for one request has come to."""

    index: NgramIndex
    length: int  # guesses to make next time
    next_pause: int = _FIRST_PAUSE
    resume_at: int = 0  # tokens that the request must have before the next guess


class Speculator:
    """Makes guesses for requests, and learns from their fate."""

    def __init__(self, config: SpeculationConfig) -> None:
        """Starts without any request."""
        self._config = config
        self._states: dict[int, _State] = {}

    def room(self, num_decodes: int) -> int:
        """Guesses that each of so many decoding requests may get in a step."""
        share = self._config.max_step_tokens // num_decodes - 1
        return min(max(share, 0), self._config.num_speculative_tokens)

    def propose(self, request: Request, limit: int) -> tuple[int, ...]:
        """At most `limit` guesses at what follows a request's last token.

        None for one that is not plain. Penalties and bad words look at the tokens before a row,
        which for guesses are not certain, and log-probabilities need whole rows of logits: all
        would cost more than the guesses gain.
        """
        if limit < 1 or not request.plain:
            return ()
        state = self._states.get(request.key)
        if state is None:
            config = self._config
            index = NgramIndex(config.prompt_lookup_min, config.prompt_lookup_max)
            state = _State(index, config.num_speculative_tokens)
            self._states[request.key] = state
        if request.num_tokens < state.resume_at:
            return ()
        state.index.extend(request.tokens(state.index.num_tokens, request.num_tokens))
        return state.index.propose(min(limit, state.length), _GUESSES_IF_UNSURE)

    def observe(self, request: Request, num_drafts: int, num_accepted: int) -> None:
        """Learns what became of a request's guesses, if it had any, with its new tokens known."""
        if not num_drafts:
            return
        state = self._states[request.key]
        if num_accepted == num_drafts:
            state.length = min(2 * state.length, self._config.num_speculative_tokens)
            state.next_pause = _FIRST_PAUSE
        elif num_accepted:
            state.length = num_accepted + 1
        elif state.length > 1:
            state.length //= 2
        else:
            state.resume_at = request.num_tokens + state.next_pause
            state.next_pause = min(2 * state.next_pause, _LONGEST_PAUSE)

    def forget(self, key: int) -> None:
        """Drops what is known of a request that ended."""
        self._states.pop(key, None)
