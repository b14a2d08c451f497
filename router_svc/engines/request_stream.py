"""The events of one request on one engine, between the session's reader and the pipeline."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from router_svc.errors import ApiError, ErrorKind
from router_svc.generation_types import EngineDelta, EngineEvent, EngineFinish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_MAX_BACKLOG_TOKENS = 65_536


class RequestStream:
    """The events of one request; iterated by the pipeline, filled by the session's reader."""

    def __init__(
        self, prompt: tuple[int, ...], n: int, on_cancel: Callable[[int | None], None]
    ) -> None:
        self.prompt = prompt
        self.num_unfinished = n
        self._on_cancel = on_cancel
        self._events: deque[EngineEvent] = deque()
        self._backlog_tokens = 0
        self._error: ApiError | None = None
        self._reader: asyncio.Future[None] | None = None  # of what waits for the next event

    def push(self, event: EngineEvent) -> None:
        """Adds an event; cancels the request if its reader is too far behind."""
        if self._error is not None:
            return
        if isinstance(event, EngineFinish):
            self.num_unfinished -= 1
        elif isinstance(event, EngineDelta):
            self._backlog_tokens += len(event.token_ids)
            if self._backlog_tokens > _MAX_BACKLOG_TOKENS:
                self._on_cancel(None)
                self.fail(
                    ApiError(
                        ErrorKind.RATE_LIMITED,
                        f"the answer was not read: {self._backlog_tokens} tokens are waiting",
                    )
                )
                return
        self._events.append(event)
        self._wake()

    def fail(self, error: ApiError) -> None:
        """Ends the stream with an error once the events before it have been read."""
        if self._error is None:
            self._error = error
            self._wake()

    def cancel(self, choice: int | None = None) -> None:
        """Aborts one choice, or the whole request."""
        self._on_cancel(choice)

    def _wake(self) -> None:
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
