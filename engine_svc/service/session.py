"""The server's end of one `Session`: many requests over one stream, one message per step.

The reader submits and cancels as frames come; the writer sends whatever all requests have waiting,
in one message. While a message is on its way the next one grows, so a slow peer gets fewer and
larger messages, and no request waits for another's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.service.errors import RequestError, invalid
from engine_svc.service.output_stream import OutputStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable

    from engine_svc.service.async_engine import AsyncEngine, LiveRequest

# A message is cut off past this size: large parts (log-probabilities of long prompts) must not add
# up to more than a message may have.
_MESSAGE_BYTES = 4 << 20


class Session:
    """Requests of one stream by their stream ids."""

    def __init__(
        self,
        engine: AsyncEngine,
        submit: Callable[[pb.GenerateRequest, OutputStream], LiveRequest],
        max_unsent_tokens: int,
    ) -> None:
        """`submit` checks and starts a request, and raises RequestError if it is refused."""
        self._engine = engine
        self._submit = submit
        self._max_unsent_tokens = max_unsent_tokens
        self._streams: dict[int, OutputStream] = {}
        self._live: dict[int, LiveRequest] = {}
        self._unsent: dict[int, None] = {}  # stream ids with events, the longest waiting first
        self._wake = asyncio.Event()
        self._ended = False

    async def read(self, frames: AsyncIterable[pb.SessionRequest]) -> None:
        """Takes frames until the peer closes. Raises RequestError if it breaks the protocol."""
        async for frame in frames:
            match frame.WhichOneof("frame"):
                case "submit":
                    self._start(frame.stream_id, frame.submit)
                case "cancel":
                    choice = frame.cancel.choice if frame.cancel.HasField("choice") else None
                    self._cancel(frame.stream_id, choice)
                case _:
                    raise invalid("frame", "must be submit or cancel")

    async def messages(self) -> AsyncIterator[pb.SessionResponse]:
        """Messages to send, until `end` or, once nothing is alive, the engine is closing."""
        while not self._ended:
            if self._unsent:
                yield self._next_message()
                continue
            if self._engine.closing.is_set() and not self._streams:
                return
            self._wake.clear()
            await self._wake.wait()

    def wake(self) -> None:
        """Lets `messages` look again whether it should end."""
        self._wake.set()

    def end(self) -> None:
        """Aborts every request that is still alive, and ends `messages`."""
        self._ended = True
        self._wake.set()
        for live in self._live.values():
            self._engine.cancel(live)
        self._live.clear()
        self._streams.clear()

    def _start(self, stream_id: int, request: pb.GenerateRequest) -> None:
        if stream_id in self._streams:
            raise invalid("stream_id", f"{stream_id} is in use on this stream")

        def notify() -> None:
            self._unsent[stream_id] = None
            self._wake.set()

        stream = self._streams[stream_id] = OutputStream(notify, self._max_unsent_tokens)
        try:
            self._live[stream_id] = self._submit(request, stream)
        except RequestError as error:
            stream.end(error)

    def _cancel(self, stream_id: int, choice: int | None) -> None:
        live = self._live.get(stream_id)
        if live is None:
            return
        self._engine.cancel(live, choice)
        if choice is None:
            # The peer has asked for silence: what still waits is not sent.
            self._drop(stream_id)

    def _drop(self, stream_id: int) -> None:
        self._streams.pop(stream_id, None)
        self._live.pop(stream_id, None)
        self._unsent.pop(stream_id, None)

    def _next_message(self) -> pb.SessionResponse:
        message = pb.SessionResponse()
        size = 0
        while self._unsent and size < _MESSAGE_BYTES:
            stream_id = next(iter(self._unsent))
            del self._unsent[stream_id]
            stream = self._streams[stream_id]
            events, error = stream.take()
            for event in events:
                size += event.ByteSize()
                message.events.add(stream_id=stream_id, event=event)
            if error is not None:
                message.events.add(stream_id=stream_id, failure=to_failure(error))
            if stream.ended:
                self._drop(stream_id)
        return message


def to_failure(error: RequestError) -> pb.Failure:
    """A request's error as an event of its session."""
    status = error.status
    return pb.Failure(
        code=status.code, message=status.message, status_details=status.SerializeToString()
    )
