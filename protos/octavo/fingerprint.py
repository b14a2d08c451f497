"""Names what a model was loaded from, so that a router and an engine can tell that they agree.

Both are cheap: neither reads weights, so a change inside a tensor that alters no size goes unseen.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from octavo.gguf_metadata import read_gguf_head

if TYPE_CHECKING:
    from pathlib import Path

_TOKENIZER_FILE = "tokenizer.json"
_WEIGHT_FILES = "*.safetensors"
_CONFIG_FILES = ("config.json", "model.safetensors.index.json")
_HEADER_LENGTH_BYTES = 8
# safetensors itself refuses longer headers.
_MAX_HEADER_BYTES = 100_000_000


def tokenizer_sha256(path: Path) -> str:
    """SHA-256, in hex, of what decides how the model at `path` tokenises.

    `path` is a Hugging Face directory or a GGUF file; that is tokenizer.json, or the GGUF's
    tokenizer.* metadata. Empty for a directory that comes without tokenizer.json: there is nothing
    to agree on. Raises OSError and GgufError.
    """
    if path.is_file():
        head = read_gguf_head(path)
        digest = hashlib.sha256()
        with path.open("rb") as file:
            for key in sorted(head.extents):
                if key.startswith("tokenizer."):
                    start, end = head.extents[key]
                    file.seek(start)
                    digest.update(file.read(end - start))
        return digest.hexdigest()
    tokenizer = path / _TOKENIZER_FILE
    return hashlib.sha256(tokenizer.read_bytes()).hexdigest() if tokenizer.is_file() else ""


def weights_version(path: Path) -> str:
    """SHA-256, in hex, over configuration, tensor tables and file sizes of the model at `path`.

    Raises OSError, GgufError, and ValueError for a safetensors file whose header cannot be there.
    """
    digest = hashlib.sha256()
    if path.is_file():
        _add(digest, "gguf", path.stat().st_size, _prefix(path, read_gguf_head(path).num_bytes))
        return digest.hexdigest()
    for name in _CONFIG_FILES:
        if (path / name).is_file():
            data = (path / name).read_bytes()
            _add(digest, name, len(data), data)
    for file in sorted(path.glob(_WEIGHT_FILES)):
        _add(digest, file.name, file.stat().st_size, _safetensors_header(file))
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, size: int, data: bytes) -> None:
    # Lengths in front, so that no two different models give the same bytes.
    digest.update(f"{name}\0{size}\0{len(data)}\0".encode())
    digest.update(data)


def _safetensors_header(file: Path) -> bytes:
    size = file.stat().st_size
    length = int.from_bytes(_prefix(file, _HEADER_LENGTH_BYTES), "little")
    if size < _HEADER_LENGTH_BYTES or length > min(size - _HEADER_LENGTH_BYTES, _MAX_HEADER_BYTES):
        raise ValueError(
            f"{file} is damaged: its header is said to have {length} bytes, the file has {size}"
        )
    return _prefix(file, _HEADER_LENGTH_BYTES + length)


def _prefix(file: Path, num_bytes: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(num_bytes)
