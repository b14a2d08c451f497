"""The end of a router: what runs may finish, and who comes late is told so rather than cut off."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import uvicorn
from starlette.middleware import Middleware

from router_svc.errors import ApiError, ErrorKind
from router_svc.http.protocol import LimitedProtocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

_POLL_SECONDS = 0.05
_HARMLESS = ("GET", "HEAD", "OPTIONS")  # probes, and what begins no work


def shutting_down() -> ApiError:
    """What callers are told from the begin of the drain on."""
    return ApiError(ErrorKind.UNAVAILABLE, "the server is shutting down")


class RefuseLateRequests:
    """Answers requests that come during the drain, over connections that were there before."""

    def __init__(self, app: ASGIApp, is_draining: Callable[[], bool]) -> None:
        self._app = app
        self._is_draining = is_draining

    @classmethod
    def middleware(cls, is_draining: Callable[[], bool]) -> Middleware:
        """For `build_app`."""
        return Middleware(cls, is_draining=is_draining)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in _HARMLESS and self._is_draining():
            raise shutting_down()
        await self._app(scope, receive, send)


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the router decides when to stop."""

    def __init__(self, config: uvicorn.Config, drain_seconds: float) -> None:
        super().__init__(config)
        self._drain_seconds = drain_seconds

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves them alone."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops listening, waits for the answers under way, then closes all connections.

        One that is idle stays until then. To close it at once would reset a request that its
        client has just sent.
        """
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        for connection in self._connections():
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                # uvicorn's connections have no event to wait for.
                while any(each.is_answering for each in self._connections()):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)
        await super().shutdown()

    def _connections(self) -> Iterator[LimitedProtocol]:
        for connection in list(self.server_state.connections):
            if isinstance(connection, LimitedProtocol):
                yield connection
