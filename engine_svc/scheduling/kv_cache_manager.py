"""Which request has which blocks, and which of them others may share.

A block holds the KV of `block_size` tokens; a full one is named by a hash (octavo.block_hashes).

    tokens       [ t0 … t15 | t16 … t31 | t32 … t47 | t48 … ]
    hashes         h0 ──────► h1 ──────► h2            (a part-filled block has none)

    block table  [ 7    | 3    | 9    | 4 ]
                   └ published: findable by others, as their tokens are computed
                          └ claimed: this request is about to compute them (see `probe`)

A request that would compute a block which another is computing at this moment had better wait for
it: `probe` says so, and the queue passes it over until the block is there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.block_hashes import hash_block, root_hash

from engine_svc.scheduling.block_pool import BlockPool, IntegrityError

if TYPE_CHECKING:
    from engine_svc.scheduling.request import Request


@dataclass(frozen=True, slots=True)
class PrefixProbe:
    """What the cache could do for a waiting request."""

    num_cached_blocks: int
    being_computed: bool  # the block after the cached ones is claimed by a running request


@dataclass(slots=True)
class _Table:
    """A running request's blocks."""

    blocks: list[int]
    num_published: int  # leading full blocks offered to the pool for sharing, or taken from it
    num_claimed: int  # blocks [num_published, num_claimed) are announced as being computed


class KVCacheManager:
    """Block tables of running requests over one `BlockPool`."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """Makes a pool of `num_blocks` blocks of `block_size` tokens. Raises ValueError below 1."""
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self._tables: dict[int, _Table] = {}
        self._claims: dict[bytes, int] = {}  # hash → key of the request that computes the block

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that hold no running request's tokens."""
        return self.pool.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens take."""
        return -(-num_tokens // self.block_size)

    def probe(self, request: Request) -> PrefixProbe:
        """Looks for the request's longest cached prefix, without taking it."""
        limit = self._num_shareable_blocks(request)
        hashes = self._hashes(request, limit)
        for index in range(limit):
            if self.pool.find(hashes[index]) is None:
                return PrefixProbe(index, hashes[index] in self._claims)
        return PrefixProbe(limit, being_computed=False)

    def num_new_blocks(self, request: Request, probe: PrefixProbe) -> int:
        """Free blocks that it takes to hold all known tokens of a waiting request."""
        cached = request.block_hashes[: probe.num_cached_blocks]
        in_use = sum(not self._is_free(block_hash) for block_hash in cached)
        return self.blocks_for(request.num_tokens) - in_use

    def admit(self, request: Request, *, use_cache: bool = True) -> tuple[int, ...]:
        """Gives a request a table with its cached prefix, which it returns, and claims the rest.

        At least one token stays uncomputed, since logits come only from computing.
        """
        num_cached = self.probe(request).num_cached_blocks if use_cache else 0
        blocks = []
        for block_hash in request.block_hashes[:num_cached]:
            block = self.pool.find(block_hash)
            if block is None:
                raise IntegrityError(f"request {request.key}: a cached block vanished while taken")
            self.pool.acquire(block)
            blocks.append(block)
        num_claimed = request.num_tokens // self.block_size if use_cache else num_cached
        for block_hash in self._hashes(request, num_claimed)[num_cached:num_claimed]:
            self._claims.setdefault(block_hash, request.key)
        self._tables[request.key] = _Table(blocks, num_cached, max(num_claimed, num_cached))
        return tuple(blocks)

    def num_missing_blocks(self, request: Request, num_tokens: int) -> int:
        """Blocks that a running request lacks for `num_tokens` tokens."""
        return max(self.blocks_for(num_tokens) - len(self._tables[request.key].blocks), 0)

    def grow(self, request: Request, num_tokens: int) -> tuple[int, ...] | None:
        """Appends blocks so that `num_tokens` tokens fit, and returns them; None if too few."""
        table = self._tables[request.key]
        count = self.blocks_for(num_tokens) - len(table.blocks)
        if count <= 0:
            return ()
        blocks = self.pool.allocate(count)
        if blocks is None:
            return None
        table.blocks += blocks
        return tuple(blocks)

    def publish(self, request: Request) -> None:
        """Makes the full blocks findable whose tokens have been computed since the last call."""
        table = self._tables[request.key]
        num_full = request.num_computed_tokens // self.block_size
        if num_full <= table.num_published:
            return
        hashes = self._hashes(request, num_full)
        for index in range(table.num_published, num_full):
            self.pool.publish(table.blocks[index], hashes[index])
            self._drop_claim(hashes[index], request.key)
        table.num_published = num_full

    def free(self, request: Request, *, distrust: bool = False) -> None:
        """Takes a request's blocks back. Published ones stay findable, unless distrusted.

        The tail is released first, so that a chain is evicted from its end: without its parents a
        block could never be found again.
        """
        table = self._tables.pop(request.key)
        for block_hash in request.block_hashes[table.num_published : table.num_claimed]:
            self._drop_claim(block_hash, request.key)
        if distrust:
            for block in table.blocks:
                self.pool.unpublish(block)
        self.pool.release(reversed(table.blocks))

    def flush(self) -> int:
        """Forgets every cached block that no request uses; returns how many."""
        return self.pool.flush()

    def check_integrity(self, running: dict[int, Request], max_draft_tokens: int = 0) -> None:
        """Checks tables, references, hashes and claims against the running requests.

        Room for up to `max_draft_tokens` wrong guesses stays in a table, for what comes instead.
        Raises IntegrityError that names what is wrong.
        """
        if self._tables.keys() != running.keys():
            extra = sorted(self._tables.keys() ^ running.keys())
            raise IntegrityError(f"requests {extra} either run without blocks or hold blocks idly")
        refs: Counter[int] = Counter()
        for key, table in self._tables.items():
            self._check_table(running[key], table, max_draft_tokens)
            refs.update(table.blocks)
        self.pool.check_integrity(refs)
        for block_hash, key in self._claims.items():
            owner = self._tables.get(key)
            if owner is None:
                raise IntegrityError(f"request {key} claims a block but does not run")
            claimed = running[key].block_hashes[owner.num_published : owner.num_claimed]
            if block_hash not in claimed:
                raise IntegrityError(f"request {key} claims a block that it will not compute")

    def _check_table(self, request: Request, table: _Table, max_draft_tokens: int) -> None:
        key, blocks = request.key, table.blocks
        if len(set(blocks)) != len(blocks):
            raise IntegrityError(f"request {key} has a block twice: {blocks}")
        if len(blocks) * self.block_size < request.num_computed_tokens:
            raise IntegrityError(
                f"request {key} computed {request.num_computed_tokens} tokens "
                f"but has only {len(blocks)} blocks of {self.block_size}"
            )
        if len(blocks) > self.blocks_for(request.num_tokens + max_draft_tokens):
            raise IntegrityError(
                f"request {key} has {len(blocks)} blocks for {request.num_tokens} tokens"
            )
        for index, block in enumerate(blocks):
            block_hash = self.pool.hash_of(block)
            if block_hash is None:
                continue
            if index >= table.num_published:
                raise IntegrityError(f"request {key}: block {index} is findable but not computed")
            if block_hash != request.block_hashes[index]:
                raise IntegrityError(f"request {key}: block {index} is found under another's hash")

    def _is_free(self, block_hash: bytes) -> bool:
        block = self.pool.find(block_hash)
        return block is None or self.pool.is_free(block)

    def _drop_claim(self, block_hash: bytes, key: int) -> None:
        if self._claims.get(block_hash) == key:
            del self._claims[block_hash]

    def _num_shareable_blocks(self, request: Request) -> int:
        """Leading blocks that may come from the cache: never the last token, nor asked logits.

        The log-probability of prompt position p comes from computing the token at p - 1.
        """
        num_tokens = request.num_tokens - 1
        if request.wants_prompt_logprobs:
            num_tokens = min(num_tokens, max(request.next_prompt_logprob - 1, 0))
        return num_tokens // self.block_size

    def _hashes(self, request: Request, count: int) -> list[bytes]:
        """The request's block hashes, at least `count` of them; all those blocks must be full."""
        hashes, size = request.block_hashes, self.block_size
        while len(hashes) < count:
            parent = hashes[-1] if hashes else root_hash(request.cache_salt, request.lora)
            start = len(hashes) * size
            hashes.append(hash_block(parent, request.tokens(start, start + size)))
        return hashes
