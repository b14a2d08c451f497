"""A generated endpoint as a Starlette route."""

import logging
from collections.abc import Awaitable, Callable

from octavo.logs import request_fields
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from router_svc.http.body import ClientDisconnectedError
from router_svc.http.exchange import Exchange, HttpSettings

_logger = logging.getLogger(__name__)


class _Endpoint:
    """An ASGI application around one generated function; OPTIONS tells which methods there are."""

    def __init__(
        self, verb: str, function: Callable[[Exchange], Awaitable[None]], settings: HttpSettings
    ) -> None:
        self._function = function
        self._settings = settings
        self._allow = "GET, HEAD, OPTIONS" if verb == "GET" else f"OPTIONS, {verb}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            headers = [(b"allow", self._allow.encode())]
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body"})
            return
        try:
            await self._function(Exchange(scope, receive, send, self._settings))
        except ClientDisconnectedError:
            request_id = scope["state"]["request_id"]
            _logger.info(
                "request %s: 499, the client went away",
                request_id,
                extra=request_fields(request_id),
            )


def endpoint(
    verb: str, path: str, function: Callable[[Exchange], Awaitable[None]], settings: HttpSettings
) -> Route:
    """The route of one generated function."""
    return Route(path, _Endpoint(verb, function, settings), methods=[verb, "OPTIONS"])
