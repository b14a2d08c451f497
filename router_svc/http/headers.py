"""What a call's headers or metadata say, read with suspicion."""

import math
import re
import time
import uuid

from router_svc.errors import ApiError, ErrorKind, quoted

REQUEST_ID = "x-request-id"
ANTHROPIC_REQUEST_ID = "request-id"
"""The same, where Anthropic's clients look for it."""
TRACEPARENT = "traceparent"
TIMEOUT_SECONDS = "x-request-timeout-seconds"
"""Seconds that a client gives its HTTP request, the twin of a gRPC deadline."""

_MAX_TIMEOUT_SECONDS = 86400.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
# W3C Trace Context, section 3.2: version, trace id, parent id, flags; later versions may append.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]{0,256})?")


def request_id(given: str) -> str:
    """The client's id if it is harmless in a header and a log line, else one made up."""
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def traceparent(given: str) -> str:
    """The client's trace context, or "" if it is none."""
    return given if _TRACEPARENT.fullmatch(given) else ""


def deadline(given: str) -> float | None:
    """The time.monotonic() instant that a timeout means; raises ApiError (400) for no number."""
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MAX_TIMEOUT_SECONDS:
        raise ApiError(
            ErrorKind.INVALID_REQUEST,
            f"{TIMEOUT_SECONDS} must be a number above 0 and at most {_MAX_TIMEOUT_SECONDS:.0f}, "
            f"not {quoted(given)}.",
            param=TIMEOUT_SECONDS,
            code="invalid_value",
        )
    return time.monotonic() + seconds
