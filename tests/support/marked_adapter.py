"""A packed LoRA adapter of decoders without a model: a number that changes what they say."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from kernels.lora import LoraAdapter


@dataclass(frozen=True)
class MarkedAdapter:
    """Two adapters have the same mark if all of their values are the same."""

    mark: int
    nbytes: int = 0


def mark(adapter: LoraAdapter) -> MarkedAdapter:
    """Packs an adapter."""
    digest = 0
    for name in sorted(adapter.matrices):
        matrix = adapter.matrices[name]
        for part in (name.encode(), matrix.a.tobytes(), matrix.b.tobytes()):
            digest = zlib.crc32(part, digest)
    return MarkedAdapter(digest)
