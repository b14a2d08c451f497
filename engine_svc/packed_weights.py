"""Where the packed weights of a model are kept from one start to the next."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from octavo.cache_dir import default_cache_dir

from kernels.cpu.weight_cache import WeightCache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NUM_SAMPLES = 256  # of each file
_SAMPLE_BYTES = 4096


def packed_weights_cache(
    model: Path, weights_version: str, on_notice: Callable[[str], None]
) -> WeightCache:
    """The cache of the model at `model`, a directory or a file. Raises OSError."""
    fingerprint = content_fingerprint(model, weights_version)
    return WeightCache(default_cache_dir() / "packed", fingerprint, on_notice)


def content_fingerprint(model: Path, weights_version: str) -> str:
    """Changes when weights change, though their names and sizes, and so `weights_version`, do not.

    A fine-tuned model that is copied over its base has the same tensor table: what tells them
    apart are the files' times and bytes from all over each file. Raises OSError.
    """
    digest = hashlib.sha256(weights_version.encode())
    files = [model] if model.is_file() else sorted(model.glob("*.safetensors"))
    for path in files:
        with path.open("rb", buffering=0) as file:
            status = path.stat()
            digest.update(f"{status.st_size} {status.st_mtime_ns}\0".encode())
            for i in range(_NUM_SAMPLES):
                file.seek(max(status.st_size - _SAMPLE_BYTES, 0) * i // (_NUM_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
