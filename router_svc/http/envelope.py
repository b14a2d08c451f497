"""What surrounds every HTTP answer: its request id, and one body for every failure."""

import logging
from collections.abc import Callable

import orjson
from octavo.logs import request_fields
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router_svc.errors import ApiError, ErrorKind, from_http_status
from router_svc.http import headers
from router_svc.http.body import ClientDisconnectedError
from router_svc.http.exchange import send_json

_logger = logging.getLogger(__name__)

# What is left of such a request is not read, so its connection cannot be used again.
_ENDS_CONNECTION = (ErrorKind.REQUEST_TIMEOUT, ErrorKind.REQUEST_TOO_LARGE)


class RequestIds:
    """Outermost: gives a request its id, puts it on the answer and counts the answer.

    The state's `has_started` says whether the answer has a status already. A function that is left
    in the state's `answer_headers` is asked for more headers as the answer begins. `send_body` is
    the server's own, for what follows them.
    """

    def __init__(self, app: ASGIApp, on_answer: Callable[[str, int], None]) -> None:
        self._app = app
        self._on_answer = on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = headers.request_id(Headers(scope=scope).get(headers.REQUEST_ID, ""))
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state["has_started"] = False
        state["answer_headers"] = list
        state["send_body"] = send
        names = [headers.REQUEST_ID]
        if scope["path"].startswith("/v1/messages"):
            names.append(headers.ANTHROPIC_REQUEST_ID)
        ids = [(name.encode(), request_id.encode()) for name in names]

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["has_started"] = True
                self._on_answer(_route_of(scope), message["status"])
                message["headers"] = [
                    *message.get("headers", ()),
                    *ids,
                    *state["answer_headers"](),
                ]
            await send(message)

        await self._app(scope, receive, send_with_id)


class ErrorBodies:
    """Turns every exception from further inside into an error body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope["state"]
        request_id = state["request_id"]
        try:
            await self._app(scope, receive, send)
        except ClientDisconnectedError:
            _logger.info(
                "request %s: 499, the client went away",
                request_id,
                extra=request_fields(request_id),
            )
        except ApiError as error:
            if state["has_started"]:
                raise
            await _send_error(send, error)
        except Exception:
            _logger.exception("request %s failed", request_id, extra=request_fields(request_id))
            if state["has_started"]:
                # Too late for an error body; the server cuts the connection, which the client sees.
                raise
            await _send_error(send, ApiError(ErrorKind.INTERNAL))


def on_api_error(_request: Request, error: Exception) -> Response:
    """The answer to an ApiError that a route raises."""
    assert isinstance(error, ApiError)
    return error_response(error)


def on_http_exception(request: Request, error: Exception) -> Response:
    """The answer to an HTTPException, which the routing raises for an unknown path or method."""
    assert isinstance(error, HTTPException)
    message = ""
    if error.status_code == 404:
        message = f"There is nothing at this path for {request.method}."
    response = error_response(from_http_status(error.status_code, message), error.status_code)
    for name, value in (error.headers or {}).items():
        # Starlette lists the methods in the order of a set.
        response.headers[name] = ", ".join(sorted(value.split(", "))) if name == "Allow" else value
    return response


def error_response(error: ApiError, status: int | None = None) -> Response:
    """The error as a whole answer."""
    response = Response(
        orjson.dumps(error.body()), status or error.http_status, media_type="application/json"
    )
    response.raw_headers.extend(error_headers(error))
    return response


def error_headers(error: ApiError) -> list[tuple[bytes, bytes]]:
    """The headers of an error's answer besides those of its body."""
    extra = error.headers()
    if error.kind in _ENDS_CONNECTION:
        extra.append((b"connection", b"close"))
    return extra


async def _send_error(send: Send, error: ApiError) -> None:
    await send_json(send, error.http_status, orjson.dumps(error.body()), error_headers(error))


def _route_of(scope: Scope) -> str:
    endpoint = scope.get("endpoint")
    paths = (r.path for r in scope["app"].routes if isinstance(r, Route) and r.endpoint is endpoint)
    return next(paths, "") if endpoint is not None else ""
