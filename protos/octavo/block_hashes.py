"""Names of KV blocks, which engines and routers compute alike.

A full block is named by a hash that covers everything its content depends on: its tokens, all
tokens before them, the cache salt and the adapter.

    tokens       [ t0 … t15 | t16 … t31 | t32 … t47 | t48 … ]
    hashes         h0 ──────► h1 ──────► h2            (a part-filled block has none)
    h(i) = sha256(h(i-1) ‖ tokens of block i),  h(-1) = sha256(salt, adapter)
"""

from __future__ import annotations

import hashlib
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HASH_BYTES = 32


def root_hash(cache_salt: str, lora: str) -> bytes:
    """The parent of a first block. Lengths keep ("ab", "c") and ("a", "bc") apart."""
    salt, adapter = cache_salt.encode(), lora.encode()
    head = len(salt).to_bytes(8, "little") + salt
    return hashlib.sha256(head + len(adapter).to_bytes(8, "little") + adapter).digest()


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The hash of a full block with these tokens after `parent`."""
    return hashlib.sha256(parent + array("Q", token_ids).tobytes()).digest()


def block_hashes(
    token_ids: Sequence[int], block_size: int, *, cache_salt: str, lora: str = ""
) -> Iterator[bytes]:
    """The hashes of a prompt's full blocks, in order."""
    parent = root_hash(cache_salt, lora)
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        parent = hash_block(parent, token_ids[start : start + block_size])
        yield parent
