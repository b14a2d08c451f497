"""Server-sent events: a handler's items to one response, batched, pinged and bounded.

    handler's iterator ──produce──► outbox (at most 64 frames) ──write──► client
                                       ▲ ping, when nothing came for a while

What is ready together goes out in one send. A client that does not read fills the outbox, after
which the iterator is no longer pulled.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

import orjson
from starlette.types import Send

from router_svc.errors import ApiError, ErrorKind

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

_MAX_FRAMES = 64
_PING = b": ping\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx buffers a response unless told otherwise.
    (b"x-accel-buffering", b"no"),
]


async def send_events(
    send: Send,
    items: AsyncIterator[_T],
    encode: Callable[[_T], Any],
    *,
    end: str,
    ping_seconds: float,
    request_id: str,
) -> None:
    """Sends each item as an event and `end` after the last.

    Nothing is sent before the first item, so an error until then is raised to the caller; a later
    one becomes the last event.
    """
    last = _frame(end.encode()) if end else b""
    try:
        try:
            frames = [_frame(orjson.dumps(encode(await anext(items))))]
        except StopAsyncIteration:
            frames = []
        outbox = _Outbox(frames, ping_seconds)
        producer = asyncio.create_task(_produce(items, encode, outbox, last, request_id))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            while chunk := await outbox.take():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            outbox.close()
            producer.cancel()
            await asyncio.wait([producer])
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


async def _produce(
    items: AsyncIterator[_T],
    encode: Callable[[_T], Any],
    outbox: "_Outbox",
    last: bytes,
    request_id: str,
) -> None:
    try:
        async for item in items:
            if outbox.put(_frame(orjson.dumps(encode(item)))):
                await outbox.room()
        outbox.put(last)
    except ApiError as error:
        outbox.put(_frame(orjson.dumps(error.body())))
    except Exception:
        _logger.exception("request %s failed in its stream", request_id)
        outbox.put(_frame(orjson.dumps(ApiError(ErrorKind.INTERNAL).body())))
    finally:
        outbox.close()


def _frame(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


class _Outbox:
    """Frames on their way from the producer to the writer, both on the event loop."""

    def __init__(self, frames: list[bytes], ping_seconds: float) -> None:
        self._frames = frames
        self._is_closed = False
        self._ready = asyncio.Event()
        self._taken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ping_seconds = ping_seconds
        self._last_put = self._loop.time()
        # One timer per stream, not per event: it finds out on firing whether it fired too early.
        self._timer = self._loop.call_later(ping_seconds, self._ping)

    def put(self, frame: bytes) -> bool:
        """Adds a frame; true if the outbox is full, so that the caller has to wait for room."""
        self._frames.append(frame)
        self._last_put = self._loop.time()
        self._ready.set()
        return len(self._frames) >= _MAX_FRAMES

    async def room(self) -> None:
        """Waits until the frames were taken."""
        while len(self._frames) >= _MAX_FRAMES and not self._is_closed:
            self._taken.clear()
            await self._taken.wait()

    async def take(self) -> bytes:
        """All frames that are ready, at least one; empty after the last."""
        while not self._frames and not self._is_closed:
            self._ready.clear()
            await self._ready.wait()
        chunk = b"".join(self._frames)
        self._frames.clear()
        self._taken.set()
        return chunk

    def close(self) -> None:
        """Ends the stream after the frames that are in."""
        self._is_closed = True
        self._timer.cancel()
        self._ready.set()

    def _ping(self) -> None:
        idle = self._loop.time() - self._last_put
        # A small slack, as a loop's clock and its timers round differently.
        if idle + 0.001 >= self._ping_seconds:
            if not self._frames:
                self.put(_PING)
            idle = 0.0
        self._timer = self._loop.call_later(self._ping_seconds - idle, self._ping)
