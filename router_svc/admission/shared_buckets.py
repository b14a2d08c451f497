"""Token buckets that several processes draw from: a table in memory that they all map.

    slot = SHA-256 of a name │ state 0 │ state 1 │ which of them holds     (0: the slot is free)

A change is written to the state that does not hold and then made to hold, by one byte, so a process
that is killed at any instruction leaves the bucket as it was before or after. Locks are fcntl's,
which the kernel takes from a process that ends, however it ends. See fcntl(2), "Advisory record
locking": they belong to a process, so one process must map a table once, and use it in one thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import mmap
import os
import time
from typing import TYPE_CHECKING, Self

from router_svc.admission.bucket import Bucket, Standing, State

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

log = logging.getLogger(__name__)

NUM_SLOTS = 1 << 17  # names of one run of the server; pages that hold none take no memory
_NAME_BYTES = 32
_STATE_BYTES = 32  # limit 8, level 16, filled_at 8
_HOLDS = _NAME_BYTES + 2 * _STATE_BYTES
_SLOT_BYTES = 128
_TABLE_LOCK = NUM_SLOTS * _SLOT_BYTES  # a byte behind the table, which only a lock names


def new_table() -> int:
    """The file descriptor of a table without buckets, for `SharedBuckets` of any process."""
    fd = os.memfd_create("octavo-limits")
    os.ftruncate(fd, NUM_SLOTS * _SLOT_BYTES)
    return fd


class SharedBuckets:
    """Buckets by name in a table, which it maps; `clock` gives nanoseconds, alike everywhere."""

    def __init__(self, fd: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._fd = fd
        self._table = mmap.mmap(fd, NUM_SLOTS * _SLOT_BYTES)
        self._clock = clock

    def bucket(self, name: str, limit: int) -> SharedBucket | Bucket:
        """The bucket of that name, new or as others left it, with that limit from now on.

        When there is no room for more names it is this process's own.
        """
        digest = hashlib.sha256(name.encode()).digest()
        with _Lock(self._fd, _TABLE_LOCK):
            at = self._find(digest)
            if at is not None and not self._table[at + _HOLDS]:
                self._table[at : at + _NAME_BYTES] = digest
                _write(self._table, at, Bucket(limit, self._clock).state)
        if at is None:
            log.error("no room to share the limit of %s; it is this process's own", name)
            return Bucket(limit, self._clock)
        bucket = SharedBucket(self._fd, self._table, at, self._clock)
        bucket.resize(limit)
        return bucket

    def _find(self, digest: bytes) -> int | None:
        """Where the slot of a name is, or the free one that it may have."""
        first = int.from_bytes(digest[:8])
        for step in range(NUM_SLOTS):
            at = (first + step) % NUM_SLOTS * _SLOT_BYTES
            if not self._table[at + _HOLDS] or self._table[at : at + _NAME_BYTES] == digest:
                return at
        return None


class SharedBucket:
    """A bucket as `Bucket` is, of which each call reads and leaves the state in the table.

    The limit is what any of the processes has set last.
    """

    def __init__(self, fd: int, table: mmap.mmap, at: int, clock: Callable[[], int]) -> None:
        """`at` is where its slot begins, which has a state."""
        self._table = table
        self._at = at
        self._lock = _Lock(fd, at)
        self._bucket = Bucket(1, clock)  # the arithmetic; its state is set before each use

    @property
    def limit(self) -> int:
        """See Bucket."""
        with self._lock:
            return _read(self._table, self._at).limit

    @property
    def remaining(self) -> int:
        """See Bucket."""
        return self.standing.remaining

    @property
    def standing(self) -> Standing:
        """See Bucket."""
        with self._lock:
            return self._loaded().standing

    def try_take(self, units: int) -> int:
        """See Bucket; no two processes get the same units."""
        with self._lock:
            bucket = self._loaded()
            # Another process may have read a smaller limit since the caller looked.
            if not (wait := bucket.try_take(min(units, bucket.limit))):
                self._keep()
            return wait

    def give_back(self, units: int) -> None:
        """See Bucket."""
        with self._lock:
            self._loaded().give_back(units)
            self._keep()

    def resize(self, limit: int) -> None:
        """See Bucket."""
        with self._lock:
            if (bucket := self._loaded()).limit != limit:
                bucket.resize(limit)
                self._keep()

    def _loaded(self) -> Bucket:
        self._bucket.state = _read(self._table, self._at)
        return self._bucket

    def _keep(self) -> None:
        _write(self._table, self._at, self._bucket.state)


class _Lock:
    """Keeps other processes away from what begins at a byte; each holds it for microseconds."""

    def __init__(self, fd: int, at: int) -> None:
        self._fd = fd
        self._at = at

    def __enter__(self) -> Self:
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, self._at)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, self._at)


def _read(table: mmap.mmap, at: int) -> State:
    begin = at + _NAME_BYTES + (table[at + _HOLDS] - 1) * _STATE_BYTES
    state = table[begin : begin + _STATE_BYTES]
    return State(
        int.from_bytes(state[:8], "little"),
        int.from_bytes(state[8:24], "little", signed=True),
        int.from_bytes(state[24:], "little"),
    )


def _write(table: mmap.mmap, at: int, state: State) -> None:
    other = 1 if table[at + _HOLDS] == 1 else 0
    begin = at + _NAME_BYTES + other * _STATE_BYTES
    table[begin : begin + _STATE_BYTES] = (
        state.limit.to_bytes(8, "little")
        + state.level.to_bytes(16, "little", signed=True)
        + state.filled_at.to_bytes(8, "little")
    )
    table[at + _HOLDS] = other + 1
