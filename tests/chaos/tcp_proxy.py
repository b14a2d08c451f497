"""A TCP proxy that a test can cut, silence or turn to another port."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK_BYTES = 1 << 16


class TcpProxy:
    """Passes bytes between its own port and `upstream_port`, both on loopback."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.port = 0  # known after `start`
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._refusing = False

    async def start(self) -> None:
        """Listens on a port of its own."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Ends all connections and the port."""
        if self._server is not None:
            self._server.close()
        self._passing.set()
        self.cut()
        if self._connections:
            await asyncio.wait(self._connections, timeout=5)

    def cut(self) -> None:
        """Resets every connection; new ones are welcome."""
        for writer in list(self._writers):
            writer.transport.abort()

    def refuse(self, *, refusing: bool) -> None:
        """Resets every connection, the new ones too, until told otherwise."""
        self._refusing = refusing
        if refusing:
            self.cut()

    def silence(self, *, silent: bool) -> None:
        """Keeps connections open and passes nothing on, as a lost route does."""
        if silent:
            self._passing.clear()
        else:
            self._passing.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:  # nobody listens there now, which is what the peer shall see
            writer.transport.abort()
            return
        ends = {writer, up_writer}
        self._writers |= ends
        try:
            ways = [
                asyncio.create_task(self._pass(reader, up_writer)),
                asyncio.create_task(self._pass(up_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._writers -= ends
            for end in ends:
                end.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._passing.wait()
                writer.write(data)
                await writer.drain()
