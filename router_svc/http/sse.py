"""Server-sent events: a handler's items to one response, one after another, with pings in between.

A client that does not read lets the connection's buffer fill up; from then on `send` waits, and the
iterator is no longer pulled.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

import orjson
from octavo.logs import request_fields
from starlette.types import Send

from router_svc.errors import ApiError, ErrorKind
from router_svc.http.deadline import until

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

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
    event_key: str,
    ping_seconds: float,
    request_id: str,
    deadline: float | None = None,
    send_body: Send | None = None,
) -> None:
    """Sends each item as an event and `end`, if it is not empty, after the last.

    With an `event_key` the value of that key of an item's JSON names the event, and the event of an
    error is named "error", under the key too.

    Nothing is sent before the first item, so an error until then is raised to the caller; a later
    one becomes the last event. `deadline` is the time.monotonic() instant of such an error. What
    follows the response's start goes by `send_body`, if that is another way.
    """
    last = _frame(end.encode()) if end else b""
    frame_of = _named_frame(event_key) if event_key else _plain_frame
    try:
        try:
            async with until(deadline):
                first = frame_of(encode(await anext(items)))
        except StopAsyncIteration:
            first = b""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        body = _Body(send_body or send)
        await body.write(first)
        pings = asyncio.create_task(body.ping_when_silent(ping_seconds))
        try:
            async with until(deadline):
                async for item in items:
                    frame = frame_of(encode(item))
                    # Streams that got a token from the same step all write in the loop's next
                    # round, one right after another: a client with several of them wakes up once.
                    await asyncio.sleep(0)
                    await body.write(frame)
        except ApiError as error:
            last = frame_of(_event_of(error, event_key))
        except Exception:
            _logger.exception(
                "request %s failed in its stream", request_id, extra=request_fields(request_id)
            )
            last = frame_of(_event_of(ApiError(ErrorKind.INTERNAL), event_key))
        finally:
            pings.cancel()
        await body.end(last)
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


def _frame(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


def _plain_frame(item: Any) -> bytes:
    return _frame(orjson.dumps(item))


def _named_frame(key: str) -> Callable[[Any], bytes]:
    # The name is a word of the protos, so it needs no escaping.
    return lambda item: b"event: %b\ndata: %b\n\n" % (item[key].encode(), orjson.dumps(item))


def _event_of(error: ApiError, event_key: str) -> dict[str, Any]:
    return {event_key: "error", **error.body()} if event_key else error.body()


class _Body:
    """The body of a response that is under way. Each write is a whole frame."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._time = asyncio.get_running_loop().time
        self._last_write = self._time()

    async def write(self, frame: bytes) -> None:
        """Sends a frame; waits while the connection's buffer is full."""
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})
        self._last_write = self._time()

    async def end(self, frame: bytes) -> None:
        """Sends the last frame."""
        await self._send({"type": "http.response.body", "body": frame, "more_body": False})

    async def ping_when_silent(self, seconds: float) -> None:
        """Writes a comment whenever nothing was written for so long, until it is cancelled."""
        while True:
            silence = self._time() - self._last_write
            if silence < seconds:
                await asyncio.sleep(seconds - silence)
            else:
                await self.write(_PING)
