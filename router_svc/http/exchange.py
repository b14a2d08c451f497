"""One HTTP request and its answer: what the generated routes are written against."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from octavo.logs import request_fields
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from router_svc.admission.permit import Permit
from router_svc.call_context import CallContext
from router_svc.http import headers
from router_svc.http.body import ClientDisconnectedError, read_object
from router_svc.http.deadline import until
from router_svc.http.sse import send_events

_T = TypeVar("_T")

_logger = logging.getLogger(__name__)

DEFAULT_BODY_CAP = 32 * 1024 * 1024
DEFAULT_PING_SECONDS = 15.0
DEFAULT_BODY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Largest body in bytes, the seconds it may take to arrive, and the seconds of silence after
    which a stream gets a ping.
    """

    body_cap: int = DEFAULT_BODY_CAP
    ping_seconds: float = DEFAULT_PING_SECONDS
    body_seconds: float = DEFAULT_BODY_SECONDS


class Exchange:
    """One request. `context` is what the handler gets to know of it besides the message."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, settings: HttpSettings) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._settings = settings
        self._headers = Headers(scope=scope)
        self.context = CallContext(
            request_id=scope["state"]["request_id"],
            traceparent=headers.traceparent(self._headers.get(headers.TRACEPARENT, "")),
            deadline=headers.deadline(self._headers.get(headers.TIMEOUT_SECONDS, "")),
            tenant=scope["state"].get("tenant", ""),
            permit=scope["state"].get("permit") or Permit(),
        )

    async def body(self) -> dict[str, object]:
        """The body's JSON object; raises ApiError 400, 408, 413 or 415."""
        return await read_object(
            self._headers, self._receive, self._settings.body_cap, self._settings.body_seconds
        )

    def path_value(self, name: str) -> str:
        """What the end of the path holds, percent-decoded."""
        return str(self._scope["path_params"][name])

    async def reply(self, call: Coroutine[Any, Any, _T], encode: Callable[[_T], Any]) -> None:
        """Awaits the handler's answer and sends it; a client that goes away cancels the handler."""
        answer = await self._unless_disconnected(self._in_time(call))
        await send_json(self._send, 200, orjson.dumps(encode(answer)))

    async def stream(
        self,
        items: AsyncIterator[_T],
        encode: Callable[[_T], Any],
        *,
        end: str,
        event_key: str = "",
    ) -> None:
        """Sends the handler's items as events; a client that goes away closes the iterator."""
        await self._unless_disconnected(
            send_events(
                self._send,
                items,
                encode,
                end=end,
                event_key=event_key,
                ping_seconds=self._settings.ping_seconds,
                request_id=self.context.request_id,
                deadline=self.context.deadline,
                # Nothing around an answer has a word in it once it has begun: frames go straight to
                # the connection.
                send_body=self._scope["state"].get("send_body"),
            )
        )

    async def _in_time(self, call: Coroutine[Any, Any, _T]) -> _T:
        async with until(self.context.deadline):
            return await call

    async def _unless_disconnected(self, work: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.create_task(work)
        watcher = asyncio.create_task(_disconnected(self._receive))
        try:
            await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ClientDisconnectedError
        finally:
            watcher.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
                if not task.cancelled() and (error := task.exception()) is not None:
                    request_id = self.context.request_id
                    _logger.error(
                        "request %s failed while cancelled",
                        request_id,
                        exc_info=error,
                        extra=request_fields(request_id, self.context.traceparent),
                    )


async def send_json(
    send: Send, status: int, body: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Sends a whole JSON answer."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                *(extra or ()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def _disconnected(receive: Receive) -> None:
    """Returns once the client is gone; only called after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
