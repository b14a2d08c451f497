"""The data of a stream of events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx


async def event_data(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each event, one line each.

    httpx's own lines end at U+0085 and U+2028 as well, which a random model is glad to write.
    """
    waiting = b""
    async for part in response.aiter_bytes():
        *lines, waiting = (waiting + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ")
