"""Which blocks of the prefix cache can be found, and how that changed, for who routes by it.

record     1      2      3      4            a record a turn of the engine that changed anything
kept              [2      3      4]          the latest; who has missed more gets a snapshot
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.block_hashes import HASH_BYTES
from octavo.engine.v1 import telemetry_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_MAX_KEPT_BYTES = 1 << 20
# Changes of some steps go in one message: routing has no use for more.
_MIN_INTERVAL = 0.02


@dataclass(frozen=True, slots=True)
class _Record:
    sequence: int
    stored: bytes
    removed: bytes


class KvEventLog:
    """The changes of one engine's cache; to be used from one event loop."""

    def __init__(self, epoch: str, block_size: int) -> None:
        self._epoch = epoch
        self._block_size = block_size
        self._sequence = 0
        self._findable: dict[bytes, None] = {}
        self._records: deque[_Record] = deque()
        self._kept_bytes = 0
        self._changed = asyncio.Event()

    def add(self, stored: bytes, removed: bytes) -> None:
        """Takes a turn's changes: hashes, one after another, that can be found now, or no more."""
        for block in _hashes(removed):
            self._findable.pop(block, None)
        self._findable |= dict.fromkeys(_hashes(stored))
        self._sequence += 1
        self._records.append(_Record(self._sequence, stored, removed))
        self._kept_bytes += len(stored) + len(removed)
        while self._kept_bytes > _MAX_KEPT_BYTES and len(self._records) > 1:
            oldest = self._records.popleft()
            self._kept_bytes -= len(oldest.stored) + len(oldest.removed)
        self._changed.set()

    async def watch(
        self, epoch: str, after: int, closing: asyncio.Event
    ) -> AsyncIterator[pb.WatchKvEventsResponse]:
        """What has changed since message `after` of `epoch`, then every change until `closing`."""
        if not self._knows(epoch, after):
            after = self._sequence
            yield self._snapshot()
        while not closing.is_set():
            if after == self._sequence:
                self._changed.clear()
                await _first_of(self._changed, closing)
                await asyncio.sleep(_MIN_INTERVAL)
                continue
            if not self._knows(self._epoch, after):  # a reader that slow begins again
                after = self._sequence
                yield self._snapshot()
                continue
            record = self._records[after + 1 - self._records[0].sequence]
            yield self._message(record.sequence, record.stored, record.removed)
            after = record.sequence

    def _knows(self, epoch: str, after: int) -> bool:
        if epoch != self._epoch or after > self._sequence:
            return False
        return after == self._sequence or (
            bool(self._records) and after + 1 >= self._records[0].sequence
        )

    def _snapshot(self) -> pb.WatchKvEventsResponse:
        message = self._message(self._sequence, b"".join(self._findable), b"")
        message.snapshot = True
        return message

    def _message(self, sequence: int, stored: bytes, removed: bytes) -> pb.WatchKvEventsResponse:
        return pb.WatchKvEventsResponse(
            epoch=self._epoch,
            sequence=sequence,
            stored=stored,
            removed=removed,
            block_size=self._block_size,
        )


def _hashes(joined: bytes) -> list[bytes]:
    return [joined[i : i + HASH_BYTES] for i in range(0, len(joined), HASH_BYTES)]


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
