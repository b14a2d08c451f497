"""What a parent and a worker say to each other: lines of JSON over a pair of sockets.

{"tell": value}                     a notice, without an answer
{"ask": n}  →  {"reply": n, "value": …}   "your metrics, please"; either side may ask
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

_MAX_LINE_BYTES = 64 << 20


class ControlClosedError(Exception):
    """The other side has ended."""


class Control:
    """One end of the connection. `run` must run for anything to arrive."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        on_tell: Callable[[Any], None],
        answer: Callable[[], Awaitable[Any]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_tell = on_tell
        self._answer = answer
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._closed = False

    @classmethod
    async def over(
        cls,
        end: socket.socket,
        *,
        on_tell: Callable[[Any], None],
        answer: Callable[[], Awaitable[Any]],
    ) -> Control:
        """Over one end of a socket pair, which it owns from now on."""
        reader, writer = await asyncio.open_unix_connection(sock=end, limit=_MAX_LINE_BYTES)
        return cls(reader, writer, on_tell=on_tell, answer=answer)

    async def run(self) -> None:
        """Handles what arrives, until the other side ends."""
        try:
            while line := await self._reader.readline():
                self._handle(orjson.loads(line))
        except ConnectionError:
            pass  # it was killed
        finally:
            self._closed = True
            self._writer.close()
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(ControlClosedError)

    def tell(self, value: Any) -> None:
        """Sends a notice."""
        self._send({"tell": value})

    async def ask(self) -> Any:
        """The other side's answer. Raises ControlClosedError."""
        if self._closed:
            raise ControlClosedError
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send({"ask": number})
        try:
            return await future
        finally:
            del self._asked[number]

    def _handle(self, message: dict[str, Any]) -> None:
        if "tell" in message:
            self._on_tell(message["tell"])
        elif "ask" in message:
            task = asyncio.create_task(self._reply(message["ask"]))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif (future := self._asked.get(message["reply"])) is not None and not future.done():
            future.set_result(message["value"])

    async def _reply(self, number: int) -> None:
        self._send({"reply": number, "value": await self._answer()})

    def _send(self, message: dict[str, Any]) -> None:
        if not self._closed:
            self._writer.write(orjson.dumps(message) + b"\n")
