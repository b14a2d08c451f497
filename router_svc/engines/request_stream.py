"""The events of one request on one engine, between the session's reader and the pipeline."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from router_svc.errors import ApiError, ErrorKind
from router_svc.generation_types import EngineDelta, EngineEvent, EngineFinish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from router_svc.generation_types import Adapter

_MAX_BACKLOG_TOKENS = 65_536
_MAX_RUN_TOKENS = 256  # a longer one would keep the event loop from others


class RequestStream:
    """The events of one request; iterated by the pipeline, filled by the session's reader."""

    def __init__(
        self,
        prompt: tuple[int, ...],
        n: int,
        on_cancel: Callable[[int | None], None],
        adapter: Adapter | None = None,
    ) -> None:
        self.prompt = prompt
        self.adapter = adapter
        self.num_unfinished = n
        self._on_cancel = on_cancel
        self._events: deque[EngineEvent] = deque()
        self._coming: list[tuple[int, int, list[int]]] = []  # choice, first position, token ids
        self._last_ids: list[int] = []
        self._last_run = EngineDelta(0, 0, self._last_ids, ())
        self._backlog_tokens = 0
        self._error: ApiError | None = None
        self._reader: asyncio.Future[None] | None = None  # of what waits for the next event

    def push(self, event: EngineEvent) -> None:
        """Adds an event and wakes the reader; cancels the request if that is too far behind."""
        if self._error is not None:
            return
        if isinstance(event, EngineFinish):
            self.num_unfinished -= 1
        elif isinstance(event, EngineDelta):
            self._count(len(event.token_ids))
        self._take_in()
        self._events.append(event)
        self.wake()

    def push_tokens(self, choice: int, first_position: int, token_ids: list[int]) -> None:
        """Adds tokens without log-probabilities, which the reader gets when `wake` is called."""
        if self._error is None:
            self._count(len(token_ids))
            self._coming.append((choice, first_position, token_ids))

    def _take_in(self) -> None:
        """Lets the reader have what has come; tokens join those that it has not taken yet."""
        for choice, first_position, token_ids in self._coming:
            last = self._last_run
            if (
                self._events
                and self._events[-1] is last
                and last.choice == choice
                and last.first_position + len(self._last_ids) == first_position
                and len(self._last_ids) < _MAX_RUN_TOKENS
            ):
                self._last_ids += token_ids
            else:
                self._last_ids = token_ids
                self._last_run = EngineDelta(choice, first_position, token_ids, ())
                self._events.append(self._last_run)
        self._coming.clear()

    def _count(self, num_tokens: int) -> None:
        self._backlog_tokens += num_tokens
        if self._backlog_tokens > _MAX_BACKLOG_TOKENS:
            self._on_cancel(None)
            self.fail(
                ApiError(
                    ErrorKind.RATE_LIMITED,
                    f"the answer was not read: {self._backlog_tokens} tokens are waiting",
                )
            )

    def fail(self, error: ApiError) -> None:
        """Ends the stream with an error once the events before it have been read."""
        if self._error is None:
            self._error = error
            self.wake()

    def cancel(self, choice: int | None = None) -> None:
        """Aborts one choice, or the whole request."""
        self._on_cancel(choice)

    def wake(self) -> None:
        """Has the reader look for events, the tokens that have come among them."""
        self._take_in()
        # A bare future: this runs for each token, and an asyncio.Event takes three times as long.
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    async def __aiter__(self) -> AsyncIterator[EngineEvent]:
        while True:
            while self._events:
                event = self._events.popleft()
                if isinstance(event, EngineDelta):
                    self._backlog_tokens -= len(event.token_ids)
                yield event
            if self._error is not None:
                raise self._error
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
