"""Failures of a request as gRPC statuses with google.rpc details.

    what went wrong                      code                 details
    ───────────────────────────────────  ───────────────────  ──────────────────────────────────
    a value out of range, unsupported    INVALID_ARGUMENT     BadRequest with the field
    `expect` does not hold               FAILED_PRECONDITION  ErrorInfo MISMATCH
    queue full, client too slow          RESOURCE_EXHAUSTED   RetryInfo (full queue), ErrorInfo
    draining, stopping                   UNAVAILABLE          ErrorInfo DRAINING, RetryInfo
    engine cannot keep up (stalled)      UNAVAILABLE          ErrorInfo OVERLOADED, RetryInfo
    an adapter cannot be (un)loaded      as admin.proto says  ErrorInfo with the reason
    deadline passed                      DEADLINE_EXCEEDED    ErrorInfo with metadata stage
    Generate on a model that embeds      UNIMPLEMENTED        none
    a bug                                INTERNAL             none: the traceback is in the log

Messages go to clients: they never carry internals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

_DOMAIN = "engine.octavo"


class RequestError(Exception):
    """Ends one request with a status; `status` is what the client gets."""

    def __init__(self, code: int, message: str, details: Sequence[Message] = ()) -> None:
        super().__init__(message)
        self.status = Status(
            code=code, message=message, details=[_packed(item) for item in details]
        )


def _packed(message: Message) -> Any:
    packed = Any()
    packed.Pack(message)
    return packed


def _error_info(reason: str, **metadata: str) -> ErrorInfo:
    return ErrorInfo(reason=reason, domain=_DOMAIN, metadata=metadata)


def _retry_after(seconds: float) -> RetryInfo:
    delay = Duration()
    delay.FromMilliseconds(max(1, round(seconds * 1000)))
    return RetryInfo(retry_delay=delay)


def invalid(field: str, message: str) -> RequestError:
    """INVALID_ARGUMENT with the field's path in the request, for example "sampling.top_p"."""
    violation = BadRequest.FieldViolation(field=field, description=message)
    return RequestError(
        Code.INVALID_ARGUMENT, f"{field}: {message}", [BadRequest(field_violations=[violation])]
    )


def mismatch(field: str, expected: str, actual: str) -> RequestError:
    """FAILED_PRECONDITION: the caller relies on something else than is loaded."""
    message = f"{field}: expected {expected!r}, but the engine has {actual!r}"
    return RequestError(
        Code.FAILED_PRECONDITION, message, [_error_info("MISMATCH", field=field, actual=actual)]
    )


def queue_full(message: str, retry_seconds: float) -> RequestError:
    """RESOURCE_EXHAUSTED: as many requests or tokens wait as may."""
    return RequestError(
        Code.RESOURCE_EXHAUSTED, message, [_error_info("QUEUE_FULL"), _retry_after(retry_seconds)]
    )


def client_too_slow(num_tokens: int) -> RequestError:
    """RESOURCE_EXHAUSTED: the client has not read what was produced for it."""
    return RequestError(
        Code.RESOURCE_EXHAUSTED,
        f"client too slow: {num_tokens} produced tokens were not read",
        [_error_info("CLIENT_TOO_SLOW")],
    )


def draining() -> RequestError:
    """UNAVAILABLE: the engine takes no more requests, or ends those it has."""
    return RequestError(
        Code.UNAVAILABLE,
        "the engine is shutting down",
        [_error_info("DRAINING"), _retry_after(1.0)],
    )


def overloaded(message: str) -> RequestError:
    """UNAVAILABLE: the engine does not get on with its work."""
    return RequestError(Code.UNAVAILABLE, message, [_error_info("OVERLOADED"), _retry_after(1.0)])


def deadline_exceeded(stage: str) -> RequestError:
    """DEADLINE_EXCEEDED in a stage: queue, prefill or decode."""
    return RequestError(
        Code.DEADLINE_EXCEEDED,
        f"the deadline passed in stage {stage}",
        [_error_info("DEADLINE_EXCEEDED", stage=stage)],
    )


def refused(code: int, message: str, reason: str) -> RequestError:
    """What an operator asks for cannot be done, for a reason that programs know by its name."""
    return RequestError(code, message, [_error_info(reason)])


def internal() -> RequestError:
    """INTERNAL: a fault of the engine; its log has the cause."""
    return RequestError(Code.INTERNAL, "the engine failed to compute this request")


def does_not_generate() -> RequestError:
    """UNIMPLEMENTED: the loaded model is an encoder."""
    return RequestError(
        Code.UNIMPLEMENTED, "the loaded model is an encoder: it does not generate (use Embed)"
    )
