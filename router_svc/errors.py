"""One table of failures: what a client sees of each over HTTP, gRPC and in an OpenAI error body.

Every failure that may reach a client is an `ApiError` of one `ErrorKind`. The engine's failures
arrive as gRPC statuses with google.rpc details (AIP-193) and become one by `from_grpc_status`.
"""

import enum
import json
import logging
import math
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from google.rpc import (
    error_details_pb2,
    status_pb2,
)
from grpc import aio
from grpc_status import rpc_status

_logger = logging.getLogger(__name__)

DOMAIN = "octavo"
"""Domain of the ErrorInfo details that Octavo writes."""

_MAX_MESSAGE_BYTES = 1024
_MAX_PARAM_BYTES = 256
# google.rpc.ErrorInfo: a reason has at most 63 characters.
_MAX_CODE_CHARACTERS = 63
_MAX_STATUS_BYTES = 16384
_MAX_RETRY_SECONDS = 3600.0


class ErrorKind(enum.Enum):
    """A class of failures: HTTP status, gRPC code, OpenAI error type and a safe message."""

    INVALID_REQUEST = (
        400,
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid_request_error",
        "The request is not valid.",
    )
    FAILED_PRECONDITION = (
        400,
        grpc.StatusCode.FAILED_PRECONDITION,
        "invalid_request_error",
        "The server is not in a state to answer this request.",
    )
    UNAUTHENTICATED = (
        401,
        grpc.StatusCode.UNAUTHENTICATED,
        "authentication_error",
        "No valid API key was given.",
    )
    PERMISSION_DENIED = (
        403,
        grpc.StatusCode.PERMISSION_DENIED,
        "permission_error",
        "The API key does not allow this.",
    )
    NOT_FOUND = (404, grpc.StatusCode.NOT_FOUND, "not_found_error", "There is nothing here.")
    METHOD_NOT_ALLOWED = (
        405,
        grpc.StatusCode.UNIMPLEMENTED,
        "invalid_request_error",
        "This path does not answer this HTTP method.",
    )
    REQUEST_TIMEOUT = (
        408,
        grpc.StatusCode.INVALID_ARGUMENT,
        "timeout_error",
        "The request did not arrive in time.",
    )
    REQUEST_TOO_LARGE = (
        413,
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid_request_error",
        "The request is too large.",
    )
    URI_TOO_LONG = (
        414,
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid_request_error",
        "The address is too long.",
    )
    UNSUPPORTED_MEDIA_TYPE = (
        415,
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid_request_error",
        "The body must be JSON, sent as Content-Type: application/json.",
    )
    UNPROCESSABLE = (
        422,
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid_request_error",
        "The request cannot be carried out.",
    )
    RATE_LIMITED = (
        429,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "rate_limit_error",
        "The server is at its limit; try again later.",
    )
    HEADERS_TOO_LARGE = (
        431,
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid_request_error",
        "The request's headers are too large.",
    )
    CANCELLED = (
        499,
        grpc.StatusCode.CANCELLED,
        "cancelled_error",
        "The request was cancelled.",
    )
    INTERNAL = (500, grpc.StatusCode.INTERNAL, "server_error", "The server failed on this request.")
    UNIMPLEMENTED = (
        501,
        grpc.StatusCode.UNIMPLEMENTED,
        "server_error",
        "The server does not offer this.",
    )
    UNAVAILABLE = (
        503,
        grpc.StatusCode.UNAVAILABLE,
        "server_error",
        "The server cannot answer now; try again later.",
    )
    DEADLINE_EXCEEDED = (
        504,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "timeout_error",
        "The request's deadline passed.",
    )

    def __init__(
        self, http_status: int, grpc_code: grpc.StatusCode, openai_type: str, safe_message: str
    ) -> None:
        self.http_status = http_status
        self.grpc_code = grpc_code
        self.openai_type = openai_type
        self.safe_message = safe_message

    @property
    def is_clients_fault(self) -> bool:
        """Whether the client must change its request; repeating it would fail again."""
        return self.http_status < 500 and self not in _NOBODYS_FAULT


_NOBODYS_FAULT = (ErrorKind.REQUEST_TIMEOUT, ErrorKind.RATE_LIMITED, ErrorKind.CANCELLED)
_RETRIED_LATER = (ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE)

# Where several kinds share a code, the code alone tells the first of them.
_KIND_OF_CODE = {kind.grpc_code: kind for kind in reversed(ErrorKind)} | {
    grpc.StatusCode.UNIMPLEMENTED: ErrorKind.UNIMPLEMENTED,
    grpc.StatusCode.OUT_OF_RANGE: ErrorKind.INVALID_REQUEST,
    grpc.StatusCode.ALREADY_EXISTS: ErrorKind.INVALID_REQUEST,
    grpc.StatusCode.ABORTED: ErrorKind.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN: ErrorKind.INTERNAL,
    grpc.StatusCode.DATA_LOSS: ErrorKind.INTERNAL,
}
_CODE_OF_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_KIND_OF_HTTP_STATUS = {kind.http_status: kind for kind in reversed(ErrorKind)}


class ApiError(Exception):
    """A failure as a client may see it.

    `param` is the path of the field at fault, `code` a stable lower-case word such as
    "context_length_exceeded", `retry_after` seconds after which a retry makes sense. The message is
    cut to 1 KiB of valid UTF-8, so it may quote the client's text but must not carry internals.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str = "",
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.kind = kind
        self.message = _clip(message or kind.safe_message, _MAX_MESSAGE_BYTES)
        self.param = None if param is None else _clip(param, _MAX_PARAM_BYTES)
        self.code = code
        self.retry_after = retry_after
        if retry_after is None and kind in _RETRIED_LATER:
            self.retry_after = 1.0
        super().__init__(self.message)

    @property
    def http_status(self) -> int:
        """HTTP status of the answer, if none was sent yet."""
        return self.kind.http_status

    def body(self) -> dict[str, Any]:
        """OpenAI's error body, for a whole answer or an event of a stream."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind.openai_type,
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> list[tuple[bytes, bytes]]:
        """HTTP headers: when to retry, in whole seconds and in milliseconds, or what is lacking."""
        if self.kind is ErrorKind.UNAUTHENTICATED:
            return [(b"www-authenticate", b"Bearer")]
        if self.retry_after is None:
            return []
        seconds = min(max(self.retry_after, 0.0), _MAX_RETRY_SECONDS)
        return [
            (b"retry-after", b"%d" % max(1, math.ceil(seconds))),
            (b"retry-after-ms", b"%d" % math.ceil(seconds * 1000)),
        ]

    def status(self) -> status_pb2.Status:
        """The google.rpc.Status with BadRequest, RetryInfo and ErrorInfo where they apply."""
        status = status_pb2.Status(code=self.kind.grpc_code.value[0], message=self.message)
        if self.param is not None:
            violation = error_details_pb2.BadRequest.FieldViolation(
                field=self.param, description=self.message
            )
            status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        if self.retry_after is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromMilliseconds(math.ceil(self.retry_after * 1000))
            status.details.add().Pack(retry)
        if self.code is not None:
            info = error_details_pb2.ErrorInfo(
                reason=self.code.upper()[:_MAX_CODE_CHARACTERS], domain=DOMAIN
            )
            status.details.add().Pack(info)
        return status


def invalid(path: str, message: str, code: str = "invalid_value") -> ApiError:
    """A bad value of the field at `path`."""
    return ApiError(ErrorKind.INVALID_REQUEST, message, param=path or None, code=code)


def from_http_status(status: int, message: str = "") -> ApiError:
    """The error of a bare HTTP status; one outside the table is the client's fault below 500."""
    fallback = ErrorKind.INVALID_REQUEST if 400 <= status < 500 else ErrorKind.INTERNAL
    return ApiError(_KIND_OF_HTTP_STATUS.get(status, fallback), message)


def from_grpc_status(code: int, message: str, details: bytes = b"") -> ApiError:
    """What a client may see of a call's code, message and serialised google.rpc.Status.

    A message is kept where details show that Octavo wrote it, or where the fault is the client's;
    anything else (a transport's or interpreter's own words) would leak internals.
    """
    kind = _KIND_OF_CODE.get(_CODE_OF_NUMBER.get(code, grpc.StatusCode.UNKNOWN), ErrorKind.INTERNAL)
    status = status_pb2.Status()
    bad_request = error_details_pb2.BadRequest()
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    has_details = False
    try:
        if len(details) <= _MAX_STATUS_BYTES:
            status.ParseFromString(details)
        for detail in status.details:
            has_details |= any(detail.Unpack(kind_of) for kind_of in (bad_request, info, retry))
    except DecodeError:
        # Details only refine the code; what cannot be read is as good as absent.
        _logger.warning("the details of a gRPC status (code %d) cannot be read", code)
    param = bad_request.field_violations[0].field if bad_request.field_violations else None
    retry_after = None
    if retry.HasField("retry_delay"):
        retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    keep = has_details or kind.is_clients_fault
    return ApiError(
        kind,
        (message or status.message) if keep else "",
        param=param or None,
        code=info.reason[:_MAX_CODE_CHARACTERS].lower() or None,
        retry_after=retry_after,
    )


async def abort(context: aio.ServicerContext[Any, Any], error: ApiError) -> NoReturn:
    """Ends a gRPC call with the error's status and details."""
    await context.abort_with_status(rpc_status.to_status(error.status()))


def quoted(text: str, most: int = 64) -> str:
    """The client's text for a message: quoted, escaped and cut to `most` characters."""
    return json.dumps(shortened(text, most), ensure_ascii=False)


def shortened(text: str, most: int = 64) -> str:
    """The text, or its beginning and an ellipsis if it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _clip(text: str, most: int) -> str:
    # "replace" turns lone surrogates into "?"; "ignore" drops a character cut in half.
    encoded = text[:most].encode("utf-8", "replace")
    if len(encoded) <= most and len(text) <= most:
        return encoded.decode("utf-8")
    return encoded[: most - 3].decode("utf-8", "ignore") + "…"
