"""What asks a server again and again, over plain HTTP, without loading certificates each time.

httpx reads all authorities for every client that it makes, 20 ms of a core, whether they are used
or not.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx

NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
SECONDS = 60.0  # that a server on a crowded machine may take for any answer


def get(
    url: str, *, headers: Mapping[str, str] | None = None, timeout: float = SECONDS
) -> httpx.Response:
    """One GET, over a connection of its own. Raises httpx.TransportError."""
    return httpx.get(url, headers=headers, timeout=timeout, verify=NO_AUTHORITIES)


def post(url: str, *, json: object) -> httpx.Response:
    """One POST, over a connection of its own. Raises httpx.TransportError."""
    return httpx.post(url, json=json, timeout=SECONDS, verify=NO_AUTHORITIES)
