"""How something ended, in a word: for spans and metrics alike."""

from __future__ import annotations

import asyncio

from router_svc.errors import ApiError, ErrorKind

OK = "ok"

# Limits that did their work, and what failed here; everything else is the client's own doing.
_FAULTS = (
    ErrorKind.UNAVAILABLE,
    ErrorKind.INTERNAL,
    ErrorKind.DEADLINE_EXCEEDED,
    ErrorKind.RATE_LIMITED,
)


def outcome_of(error: BaseException | None) -> str:
    """OK, or the kind of error; a client that goes away cancels the call or closes its stream."""
    if error is None:
        return OK
    if isinstance(error, ApiError):
        return error.kind.name.lower()
    gone = isinstance(error, asyncio.CancelledError | GeneratorExit)
    return (ErrorKind.CANCELLED if gone else ErrorKind.INTERNAL).name.lower()


def is_fault(error: BaseException | None) -> bool:
    """Whether somebody who runs this should see an error; a client that left is none."""
    if isinstance(error, ApiError):
        return error.kind in _FAULTS
    return outcome_of(error) == ErrorKind.INTERNAL.name.lower()
