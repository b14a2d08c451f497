"""What a client has not been sent yet: one stream per request, bounded, on the event loop's side.

    step ──▶ OutputStream(request 7): [admitted] [choice 0: tokens 0 … 5] [choice 1: tokens 0 … 4]
                                                  └ the next token of choice 0 is appended here
    client ready for a message ──▶ take() ──▶ everything so far, in one go

A client as fast as the engine takes one small delta per step. For a slower one the tokens of a
choice grow in place, so it gets fewer and larger messages; past the bound its request is ended.
Plain tokens stay numbers until it is known how they are sent; all else waits as its message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from octavo.engine.v1 import engine_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine_svc.batch import TokenLogprobs
    from engine_svc.service.errors import RequestError

_NAN = float("nan")


def append_logprobs(block: pb.LogprobBlock, entry: TokenLogprobs | None) -> None:
    """Adds one position to a packed block of `block.top_k` entries a position; None is no value."""
    missing = block.top_k
    if entry is None:
        block.token_logprobs.append(_NAN)
        block.token_ranks.append(0)
    else:
        block.token_logprobs.append(entry.logprob)
        block.token_ranks.append(entry.rank)
        block.top_token_ids.extend(entry.top_token_ids)
        block.top_logprobs.extend(entry.top_logprobs)
        missing -= len(entry.top_token_ids)
    for _ in range(missing):
        block.top_token_ids.append(0)
        block.top_logprobs.append(_NAN)


@dataclass(frozen=True, slots=True)
class TokenRun:
    """New tokens of one choice, without log-probabilities."""

    choice: int
    first_position: int
    token_ids: list[int]


Unsent: TypeAlias = TokenRun | pb.GenerateResponse


def to_response(unsent: Unsent) -> pb.GenerateResponse:
    """The event as a message of its own."""
    if isinstance(unsent, TokenRun):
        delta = pb.Delta(
            choice=unsent.choice,
            first_position=unsent.first_position,
            token_ids=unsent.token_ids,
        )
        return pb.GenerateResponse(delta=delta)
    return unsent


class OutputStream:
    """Events of one request between the engine and its client. `notify` is called when the first
    event is waiting; `max_unsent_tokens` bounds the output tokens that may wait."""

    def __init__(self, notify: Callable[[], None], max_unsent_tokens: int) -> None:
        self._notify = notify
        self._max_unsent_tokens = max_unsent_tokens
        self._events: list[Unsent] = []
        self._open_runs: dict[int, TokenRun] = {}
        self._open_deltas: dict[int, pb.Delta] = {}  # those with log-probabilities
        self._num_unsent_tokens = 0
        self._error: RequestError | None = None
        self._ended = False

    @property
    def num_unsent_tokens(self) -> int:
        """Output tokens that wait."""
        return self._num_unsent_tokens

    @property
    def overflowed(self) -> bool:
        """Whether more tokens wait than may."""
        return self._num_unsent_tokens > self._max_unsent_tokens

    @property
    def has_unsent(self) -> bool:
        """Whether `take` would give anything."""
        return bool(self._events) or self._error is not None

    def add(self, event: pb.GenerateResponse) -> None:
        """Adds an event that is not a delta."""
        if self._ended:
            return
        self._events.append(event)
        self._notify()

    def add_token(
        self, choice: int, position: int, token_id: int, logprobs: TokenLogprobs | None, top_k: int
    ) -> None:
        """Adds an output token; it joins what waits of its choice, if anything does."""
        if self._ended:
            return
        if logprobs is None:
            run = self._open_runs.get(choice)
            if run is None:
                run = self._open_runs[choice] = TokenRun(choice, position, [])
                self._events.append(run)
            run.token_ids.append(token_id)
        else:
            delta = self._open_delta(choice, position, top_k)
            delta.token_ids.append(token_id)
            append_logprobs(delta.logprobs, logprobs)
        self._num_unsent_tokens += 1
        self._notify()

    def add_prompt_logprobs(
        self, first_position: int, entries: Iterable[TokenLogprobs | None], top_k: int
    ) -> None:
        """Adds log-probabilities of prompt positions."""
        part = pb.PromptLogprobs(first_position=first_position)
        part.logprobs.top_k = top_k
        for entry in entries:
            append_logprobs(part.logprobs, entry)
        self.add(pb.GenerateResponse(prompt_logprobs=part))

    def end(self, error: RequestError | None = None) -> None:
        """Nothing follows; with an error, what waits is still given before it."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        self._notify()

    @property
    def ended(self) -> bool:
        """Whether nothing will be added any more."""
        return self._ended

    def take(self) -> tuple[list[Unsent], RequestError | None]:
        """All that waits, in order, and the error that follows it if the request failed."""
        events, self._events = self._events, []
        error, self._error = self._error, None
        self._open_runs.clear()
        self._open_deltas.clear()
        self._num_unsent_tokens = 0
        return events, error

    def _open_delta(self, choice: int, position: int, top_k: int) -> pb.Delta:
        delta = self._open_deltas.get(choice)
        if delta is None:
            event = pb.GenerateResponse(delta=pb.Delta(choice=choice, first_position=position))
            delta = self._open_deltas[choice] = event.delta
            delta.logprobs.top_k = top_k
            self._events.append(event)
        return delta
