"""What a client has not been sent yet: one stream per request, bounded, on the event loop's side.

    step ──▶ OutputStream(request 7): [admitted] [choice 0: tokens 0 … 5] [choice 1: tokens 0 … 4]
                                                  └ the next token of choice 0 is appended here
    client ready for a message ──▶ take() ──▶ everything so far, in one go

A client as fast as the engine takes one small delta per step. For a slower one the deltas of a
choice grow in place, so it gets fewer and larger messages; past the bound its request is ended.
Tokens go straight into the protobuf messages that will be sent, which is also the compact form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


class OutputStream:
    """Events of one request between the engine and its client. `notify` is called when the first
    event is waiting; `max_unsent_tokens` bounds the output tokens that may wait."""

    def __init__(self, notify: Callable[[], None], max_unsent_tokens: int) -> None:
        self._notify = notify
        self._max_unsent_tokens = max_unsent_tokens
        self._events: list[pb.GenerateResponse] = []
        self._open_deltas: dict[int, pb.Delta] = {}
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
        """Adds an output token; it joins the choice's waiting delta if there is one."""
        if self._ended:
            return
        delta = self._open_deltas.get(choice)
        if delta is None:
            event = pb.GenerateResponse(delta=pb.Delta(choice=choice, first_position=position))
            delta = self._open_deltas[choice] = event.delta
            self._events.append(event)
        delta.token_ids.append(token_id)
        if logprobs is not None:
            delta.logprobs.top_k = top_k
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

    def take(self) -> tuple[list[pb.GenerateResponse], RequestError | None]:
        """All that waits, in order, and the error that follows it if the request failed."""
        events, self._events = self._events, []
        error, self._error = self._error, None
        self._open_deltas.clear()
        self._num_unsent_tokens = 0
        return events, error
