"""A TCP relay that counts the HTTP/2 pings of a client, which gRPC itself does not show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER_BYTES = 9  # length (3), type, flags, stream (4): RFC 9113, section 4.1
_PING, _ACK = 6, 1


class PingCounter:
    """Relays connections of one client; so many of them, and `pings`, there were so far."""

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self.pings = 0
        self._pinged = asyncio.Event()
        self.connections = 0

    async def wait(self, pings: int) -> None:
        """Returns once there were so many."""
        while self.pings < pings:
            self._pinged.clear()
            await self._pinged.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        back = asyncio.create_task(_copy(up_reader, writer))
        try:
            up_writer.write(await reader.readexactly(len(_PREFACE)))
            while True:
                header = await reader.readexactly(_HEADER_BYTES)
                length, kind, flags = int.from_bytes(header[:3]), header[3], header[4]
                up_writer.write(header + await reader.readexactly(length))
                if kind == _PING and not flags & _ACK:
                    self.pings += 1
                    self._pinged.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # one of the two has gone
        finally:
            back.cancel()
            up_writer.close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def ping_counter(target: str) -> AsyncIterator[tuple[PingCounter, str]]:
    """The relay in front of `target`, and where it is reached."""
    counter = PingCounter(target)
    server = await asyncio.start_server(counter.serve, "127.0.0.1", 0)
    async with server:
        yield counter, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
