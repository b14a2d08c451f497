"""The last word on a request's deadline, whatever keeps it from being answered."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from router_svc.errors import ApiError, ErrorKind

# What waits for an engine ends a second after the deadline at the latest, and in good order; this
# is for the rest.
_GRACE_SECONDS = 1.5


@asynccontextmanager
async def until(deadline: float | None) -> AsyncIterator[None]:
    """Cancels the block soon after a time.monotonic() instant; raises ApiError (504) then."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic()) + _GRACE_SECONDS
    limit = asyncio.timeout(left)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise ApiError(ErrorKind.DEADLINE_EXCEEDED) from None
