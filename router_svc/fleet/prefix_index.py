"""Which blocks of prompts an engine has cached, as it tells, and as what it was just sent implies.

stored    what the engine pushed (WatchKvEvents): exact, a few steps old
expected  blocks of prompts that were sent to it a moment ago and will be stored soon, so that
          several requests with a common prefix meet although none has been computed yet
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from octavo.block_hashes import HASH_BYTES, block_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_STORED = 1 << 20  # hashes of one engine; about 100 bytes each
_MAX_EXPECTED = 1 << 14
_EXPECTED_SECONDS = 30.0
# Longer common prefixes than so many blocks count as that long: enough to choose by.
_MAX_HASHED_BLOCKS = 1024


class PrefixIndex:
    """What one engine has cached. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stored: set[bytes] = set()
        self._expected: OrderedDict[bytes, float] = OrderedDict()
        self.epoch = ""
        self.sequence = 0

    @property
    def num_stored(self) -> int:
        """Blocks that the engine says it has."""
        return len(self._stored)

    def apply(
        self, epoch: str, sequence: int, *, snapshot: bool, stored: bytes, removed: bytes
    ) -> bool:
        """Takes one message of the engine; False if messages before it are missing."""
        if snapshot:
            self._stored.clear()
        elif epoch != self.epoch or sequence != self.sequence + 1:
            return False
        if epoch != self.epoch:
            self._expected.clear()  # another process
        self._stored.difference_update(_split(removed))
        for name in _split(stored):
            if len(self._stored) < MAX_STORED:
                self._stored.add(name)
        self.epoch, self.sequence = epoch, sequence
        return True

    def num_cached(self, hashes: Sequence[bytes]) -> int:
        """How many of a prompt's first blocks the engine has, or will have."""
        now = self._clock()
        for count, name in enumerate(hashes):
            if name not in self._stored and self._expected.get(name, 0.0) <= now:
                return count
        return len(hashes)

    def expect(self, hashes: Iterable[bytes]) -> None:
        """Notes that a prompt with these blocks was sent to the engine."""
        until = self._clock() + _EXPECTED_SECONDS
        for name in hashes:
            self._expected[name] = until
            self._expected.move_to_end(name)
        while len(self._expected) > _MAX_EXPECTED:
            self._expected.popitem(last=False)


def prompt_hashes(
    token_ids: Sequence[int], block_size: int, cache_salt: str, adapter_version: str = ""
) -> list[bytes]:
    """The names of a prompt's full blocks that a cache can give: not the one of its last token."""
    if block_size < 1:
        return []
    most = min(len(token_ids) - 1, _MAX_HASHED_BLOCKS * block_size)
    prompt = token_ids[: max(most, 0)]
    return list(block_hashes(prompt, block_size, cache_salt=cache_salt, lora=adapter_version))


def _split(joined: bytes) -> list[bytes]:
    return [joined[i : i + HASH_BYTES] for i in range(0, len(joined), HASH_BYTES)]
