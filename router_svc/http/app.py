"""The HTTP application: generated routes under one envelope of request ids and error bodies."""

import logging
from collections.abc import Callable, Iterable, Sequence
from importlib import resources

import orjson
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from router_svc.errors import ApiError, ErrorKind, from_http_status
from router_svc.http import headers
from router_svc.http.body import ClientDisconnectedError
from router_svc.http.exchange import (
    DEFAULT_BODY_CAP,
    DEFAULT_PING_SECONDS,
    HttpSettings,
    send_json,
)
from router_svc.http.service import Service

_logger = logging.getLogger(__name__)


def build_app(
    services: Iterable[Service],
    *,
    extra_routes: Iterable[BaseRoute] = (),
    middleware: Sequence[Middleware] = (),
    lifespan: Lifespan[Starlette] | None = None,
    body_cap: int = DEFAULT_BODY_CAP,
    ping_seconds: float = DEFAULT_PING_SECONDS,
    on_answer: Callable[[str, int], None] = lambda _route, _status: None,
) -> Starlette:
    """The ASGI application that serves the services and /openapi.json.

    Whatever `extra_routes` and `middleware` raise gets the same error body; an authenticating
    middleware leaves the tenant in scope["state"]["tenant"]. `on_answer` hears of each answer's
    route, as it is declared ("" for a path that is none), and status.
    """
    settings = HttpSettings(body_cap, ping_seconds)
    app = Starlette(
        routes=[
            *(route for service in services for route in service.routes(settings)),
            Route("/openapi.json", _openapi()),
            *extra_routes,
        ],
        middleware=[Middleware(_Envelope, on_answer=on_answer), *middleware],
        exception_handlers={HTTPException: _on_http_exception, ApiError: _on_api_error},
        lifespan=lifespan,
    )
    # A path with a slash too many is another path, not a redirect that drops the body.
    app.router.redirect_slashes = False
    return app


class _Envelope:
    """Puts x-request-id on every answer and turns every exception into an error body."""

    def __init__(self, app: ASGIApp, on_answer: Callable[[str, int], None]) -> None:
        self._app = app
        self._on_answer = on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(headers.REQUEST_ID, "")
        request_id = headers.request_id(given)
        scope.setdefault("state", {})["request_id"] = request_id
        header = (headers.REQUEST_ID.encode(), request_id.encode())
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                self._on_answer(_route_of(scope), message["status"])
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnectedError:
            _logger.info("request %s: 499, the client went away", request_id)
        except ApiError as error:
            if has_started:
                raise
            await _send_error(send_with_id, error)
        except Exception:
            _logger.exception("request %s failed", request_id)
            if has_started:
                # Too late for an error body; the server cuts the connection, which the client sees.
                raise
            await _send_error(send_with_id, ApiError(ErrorKind.INTERNAL))


def _route_of(scope: Scope) -> str:
    endpoint = scope.get("endpoint")
    paths = (r.path for r in scope["app"].routes if isinstance(r, Route) and r.endpoint is endpoint)
    return next(paths, "") if endpoint is not None else ""


async def _send_error(send: Send, error: ApiError) -> None:
    await send_json(send, error.http_status, orjson.dumps(error.body()), _error_headers(error))


def _error_headers(error: ApiError) -> list[tuple[bytes, bytes]]:
    extra = error.headers()
    if error.kind is ErrorKind.REQUEST_TOO_LARGE:
        # The rest of the body is not read, so the connection cannot be used again.
        extra.append((b"connection", b"close"))
    return extra


def _on_api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _error_response(error)


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = ""
    if error.status_code == 404:
        message = f"There is nothing at this path for {request.method}."
    response = _error_response(from_http_status(error.status_code, message), error.status_code)
    for name, value in (error.headers or {}).items():
        # Starlette lists the methods in the order of a set.
        response.headers[name] = ", ".join(sorted(value.split(", "))) if name == "Allow" else value
    return response


def _error_response(error: ApiError, status: int | None = None) -> Response:
    response = Response(
        orjson.dumps(error.body()), status or error.http_status, media_type="application/json"
    )
    response.raw_headers.extend(_error_headers(error))
    return response


def _openapi() -> "_Document":
    text = resources.files("router_svc.gen").joinpath("openapi.json").read_bytes()
    return _Document(text)


class _Document:
    """Serves one JSON document."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, self._text)
