"""The KV blocks of one engine: who is free, how often each is used, and which one holds what.

A block is in one of three states:

    used        ref_count > 0; with a hash, others can find and share it
    kept        ref_count = 0, with a hash: findable until it is evicted
    blank       ref_count = 0, without a hash

Unreferenced blocks wait in one list, taken from its front:

    [ blank … | kept, least recently used … kept, most recently used ]

The pool knows nothing of requests; `KVCacheManager` decides what to allocate and what to share.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class IntegrityError(Exception):
    """The books of the scheduler, the KV manager or the pool contradict each other."""


class BlockPool:
    """`num_blocks` blocks, numbered from 0. All operations take constant time per block."""

    def __init__(self, num_blocks: int) -> None:
        """Makes a pool of blank blocks. Raises ValueError for fewer than one."""
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1, got {num_blocks}")
        self._ref_counts = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._by_hash: dict[bytes, int] = {}
        self._changes: dict[bytes, bool] = {}  # hash → findable, since they were last taken
        # A linked list in C: ends and membership in constant time.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return len(self._ref_counts)

    @property
    def num_free(self) -> int:
        """Blocks that nobody uses, kept ones included."""
        return len(self._free)

    @property
    def num_findable(self) -> int:
        """Blocks that `find` can give, used or kept."""
        return len(self._by_hash)

    def find(self, block_hash: bytes) -> int | None:
        """The block that holds what `block_hash` names."""
        return self._by_hash.get(block_hash)

    def hash_of(self, block: int) -> bytes | None:
        """The hash under which `block` is findable."""
        return self._hashes[block]

    def is_free(self, block: int) -> bool:
        """Whether nobody uses `block`."""
        return self._ref_counts[block] == 0

    def allocate(self, count: int) -> list[int] | None:
        """Takes `count` blocks, one reference each; None, and no change, if too few are free."""
        if count > len(self._free):
            return None
        blocks = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._ref_counts[block] = 1
            blocks.append(block)
        return blocks

    def acquire(self, block: int) -> None:
        """Adds a reference to a block that was found."""
        if self._ref_counts[block] == 0:
            del self._free[block]
        self._ref_counts[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Drops a reference of each. Of blocks given together, the first is evicted first."""
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self._free[block] = None
                if self._hashes[block] is None:
                    self._free.move_to_end(block, last=False)

    def publish(self, block: int, block_hash: bytes) -> None:
        """Makes a used block findable, unless another with the same content already is."""
        if self._by_hash.setdefault(block_hash, block) == block:
            self._hashes[block] = block_hash
            self._changes[block_hash] = True

    def unpublish(self, block: int) -> None:
        """Makes a used block unfindable, as its content cannot be trusted."""
        self._forget(block)

    def flush(self) -> int:
        """Forgets what every unreferenced block holds; returns how many were findable."""
        kept = [block for block in self._free if self._hashes[block] is not None]
        for block in kept:
            self._forget(block)
        return len(kept)

    def take_changes(self) -> tuple[bytes, bytes]:
        """Hashes, one after another, that became findable since the last call, and that no longer
        are."""
        changes, self._changes = self._changes, {}
        stored = b"".join([name for name, findable in changes.items() if findable])
        removed = b"".join([name for name, findable in changes.items() if not findable])
        return stored, removed

    def check_integrity(self, expected_refs: Counter[int]) -> None:
        """Compares the books with the references that the pool's user counts, block → references.

        Raises IntegrityError that names the block and both numbers.
        """
        for block, refs in enumerate(self._ref_counts):
            if refs != expected_refs[block]:
                raise IntegrityError(
                    f"block {block} has {refs} references, its users hold {expected_refs[block]}"
                )
            if (block in self._free) != (refs == 0):
                state = "in" if block in self._free else "missing from"
                raise IntegrityError(
                    f"block {block} with {refs} references is {state} the free list"
                )
            block_hash = self._hashes[block]
            if block_hash is not None and self._by_hash.get(block_hash) != block:
                raise IntegrityError(
                    f"block {block} has a hash that finds block {self._by_hash.get(block_hash)}"
                )
        for block_hash, block in self._by_hash.items():
            if self._hashes[block] != block_hash:
                raise IntegrityError(f"a hash finds block {block}, which does not carry it")

    def _forget(self, block: int) -> None:
        block_hash = self._hashes[block]
        if block_hash is not None:
            del self._by_hash[block_hash]
            self._hashes[block] = None
            self._changes[block_hash] = False
