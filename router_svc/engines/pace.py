"""When those who wait for tokens are woken."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router_svc.engines.request_stream import RequestStream

# What a message over gRPC takes of a core that does nothing else; over HTTP it is half.
_MESSAGE_SECONDS = 0.00008
# Of the time that writers took, for what follows a write and for what engines send: where other
# work keeps the process from its core, all of that takes longer.
_PAUSE = 1.0


class Pace:
    """Wakes the readers of streams, no more often than this process can write to them.

    A message costs the same with one token in it or with ten. So once readers were woken, nobody is
    woken before there has been time to write to all of these: every token of a few streams travels
    by itself, and where tokens come faster than this process writes messages, several share one.
    One object serves all engines of a process.

        engine's steps     1        2        3        4        5
        time to write      ├───────────┤     ├───────────┤
        tokens             1           2     3           4, 5
    """

    def __init__(self) -> None:
        self._waiting: set[RequestStream] = set()
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None  # until when nobody is woken

    def wake(self, streams: set[RequestStream]) -> None:
        """Wakes the readers of streams that have news, now or when it is their turn."""
        self._waiting |= streams
        if self._waiting and not self._is_writing and self._timer is None:
            self._hand_out()

    def _hand_out(self) -> None:
        self._is_writing = True
        for stream in self._waiting:
            stream.wake()
        # Runs after all who have just been woken.
        asyncio.get_running_loop().call_soon(self._written, len(self._waiting), time.monotonic())
        self._waiting.clear()

    def _written(self, num_messages: int, started: float) -> None:
        self._is_writing = False
        took = time.monotonic() - started
        pause = max(num_messages * _MESSAGE_SECONDS - took, _PAUSE * took)
        self._timer = asyncio.get_running_loop().call_later(pause, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        if self._waiting:
            self._hand_out()
