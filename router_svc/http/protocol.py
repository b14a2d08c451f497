"""uvicorn's HTTP/1.1 connection with limits on what comes before a body.

httptools collects a request's head without a limit and waits for it without end, and what it cannot
parse never reaches the application. So these limits and their answers belong to the connection:

    address ≤ 8 KiB            414      no head within 30 s       408, or just the end
    headers ≤ 32 KiB, ≤ 100    431      not HTTP                  400
"""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from router_svc.errors import ApiError, ErrorKind
from router_svc.http import headers

MAX_ADDRESS_BYTES = 8 * 1024
MAX_HEADERS_BYTES = 32 * 1024
MAX_HEADERS = 100


class LimitedProtocol(HttpToolsProtocol):
    """One connection of a client."""

    head_seconds = 30.0
    """Seconds that a client has to send a request's head."""

    rest_seconds = 60.0
    """Seconds after its answer that what is left of a request's body may take."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal: ApiError | None = None
        self._is_in_head = True
        self._head_size = 0  # bytes received of it, parsed or not
        self._headers_size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._drains = False

    @property
    def is_answering(self) -> bool:
        """Whether the answer to an earlier request is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _awaits_body(self) -> bool:
        """Whether the request whose answer is the next has not all arrived, nor that begun."""
        return not (self._is_in_head or self.pipeline or self.cycle.response_started)

    def drain(self) -> None:
        """Makes the next answer the last one of this connection."""
        self._drains = True
        if self.is_answering:
            self.cycle.keep_alive = False

    # uvicorn narrows the argument's type, as TCP has nothing else.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the time for the first head."""
        super().connection_made(transport)
        self._start_timer(self.head_seconds, self._on_late_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bounds a head that has no end, which the parser would only go on collecting."""
        if self._is_in_head:
            self._head_size += len(data)
        super().data_received(data)
        most = MAX_ADDRESS_BYTES + MAX_HEADERS_BYTES
        if self._is_in_head and self._head_size > most and not self.transport.is_closing():
            self._refuse(_headers_too_large())

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._headers_size = 0
        self._start_timer(self.head_seconds, self._on_late_head)

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        super().on_url(url)
        if len(self.url) > MAX_ADDRESS_BYTES:
            message = f"The address has more than {MAX_ADDRESS_BYTES} bytes."
            raise self._refused(ApiError(ErrorKind.URI_TOO_LONG, message))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after the body: those have no meaning here and are dropped."""
        if not self._is_in_head:
            return
        super().on_header(name, value)
        self._headers_size += len(name) + len(value)
        if len(self.headers) > MAX_HEADERS or self._headers_size > MAX_HEADERS_BYTES:
            raise self._refused(_headers_too_large())

    def on_headers_complete(self) -> None:
        """The application takes over."""
        self._is_in_head = False
        self._start_timer(self.rest_seconds, self._on_late_rest)
        super().on_headers_complete()
        if self._drains:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The request has arrived."""
        self._is_in_head = True
        self._head_size = 0
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 -- uvicorn's words are one for all
        """Answers what the parser cannot read, or what was refused while it read."""
        not_http = ApiError(ErrorKind.INVALID_REQUEST, "What was received is not an HTTP request.")
        self._refuse(self._refusal or not_http)

    def _refused(self, error: ApiError) -> ApiError:
        """Keeps the error, as the parser replaces what a callback raises by an error of its own."""
        self._refusal = error
        return error

    def _refuse(self, error: ApiError) -> None:
        self._stop_timer()
        if not self.is_answering or self._awaits_body:
            body = orjson.dumps(error.body())
            lines = [
                STATUS_LINE[error.http_status],
                b"content-type: application/json\r\n",
                b"content-length: %d\r\n" % len(body),
                b"%b: %b\r\n" % (headers.REQUEST_ID.encode(), headers.request_id("").encode()),
                b"connection: close\r\n\r\n",
            ]
            self.transport.write(b"".join((*lines, body)))
        self.transport.close()

    def _on_late_head(self) -> None:
        if self.is_answering:
            self._start_timer(self.head_seconds, self._on_late_head)
        elif self._head_size:
            message = f"The request's headers did not arrive within {self.head_seconds:g} seconds."
            self._refuse(ApiError(ErrorKind.REQUEST_TIMEOUT, message))
        else:
            self.transport.close()

    def _on_late_rest(self) -> None:
        if self.is_answering:  # the application has a limit of its own
            self._start_timer(self.rest_seconds, self._on_late_rest)
        else:
            self.transport.close()

    def _start_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _headers_too_large() -> ApiError:
    return ApiError(
        ErrorKind.HEADERS_TOO_LARGE,
        f"The request has more than {MAX_HEADERS} headers or {MAX_HEADERS_BYTES} bytes of them.",
    )
