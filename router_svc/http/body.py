"""Reads a JSON body: capped before it is buffered, checked before it is parsed."""

import asyncio

import orjson
from starlette.datastructures import Headers
from starlette.types import Receive

from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.http.decoding import wrong_type


class ClientDisconnectedError(Exception):
    """The client went away; nobody is left to answer."""


async def read_object(
    headers: Headers, receive: Receive, cap: int, seconds: float
) -> dict[str, object]:
    """The body's JSON object, of at most `cap` bytes, which has to arrive within so many seconds.

    Raises ApiError: 415 for another content type or an encoding, 413 beyond the cap (by the
    announced length if there is one, so nothing is read), 408 for a body that takes too long, 400
    for what is not a JSON object.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(ErrorKind.UNSUPPORTED_MEDIA_TYPE)
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise ApiError(
            ErrorKind.UNSUPPORTED_MEDIA_TYPE, "The body must be sent without a content encoding."
        )
    announced = headers.get("content-length", "")
    # The server has checked that a content length is a number.
    if announced.isascii() and announced.isdecimal() and int(announced) > cap:
        raise _too_large(cap)
    try:
        async with asyncio.timeout(seconds):
            body = await _read(receive, cap)
    except TimeoutError:
        raise ApiError(
            ErrorKind.REQUEST_TIMEOUT, f"The body did not arrive within {seconds:g} seconds."
        ) from None
    return parse_object(body)


def parse_object(body: bytes) -> dict[str, object]:
    """Parses a JSON object; raises ApiError (400) for anything else, such as NaN."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(
            "",
            f"The body is not valid JSON: {error.msg} (byte or character {error.pos}).",
            "invalid_json",
        ) from error
    if type(value) is not dict:
        raise wrong_type("", "an object", value)
    return value


async def _read(receive: Receive, cap: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > cap:
            raise _too_large(cap)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(cap: int) -> ApiError:
    return ApiError(ErrorKind.REQUEST_TOO_LARGE, f"The body has more than {cap} bytes.")
