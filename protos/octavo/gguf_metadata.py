"""Reads the head of a GGUF file: its metadata and the size of its tensor table, never its weights.

    magic "GGUF" · version · tensor count · pair count
    pairs:   key · type · value            an array is element type · count · elements
    tensors: name · dimensions · type · offset
    padding, then the weights

Router and engine both need this in the first moments of a start. The gguf library makes a numpy
view of every token (seconds for a large vocabulary) and trusts the file's lengths, so the format
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) is read here: every length is checked
against the file's real size before anything is sliced or allocated.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GgufValue = bool | int | float | str | list["bool | int | float | str"]

_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING = 8
_ARRAY = 9
_SUPPORTED_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 8
_SMALLEST_PAIR_BYTES = 13  # an empty key, a type and a one-byte value


class GgufError(ValueError):
    """A file that is not a GGUF this reads, or is damaged; the message names the file."""


@dataclass(frozen=True, slots=True)
class GgufHead:
    """Metadata by key, where each pair lies in the file, and how long the head is, in bytes."""

    metadata: dict[str, GgufValue]
    extents: dict[str, tuple[int, int]]
    num_bytes: int


def read_gguf_head(path: Path) -> GgufHead:
    """Reads the head of the GGUF file at `path`.

    Raises GgufError for a damaged or unsupported file and OSError if it cannot be opened.
    """
    with path.open("rb") as file:
        try:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise GgufError(f"{path} is empty") from error
        with view:
            try:
                return _Reader(view).head()
            except GgufError as error:
                raise GgufError(f"{path} {error}") from error


class _Reader:
    """A cursor over the file."""

    def __init__(self, view: mmap.mmap) -> None:
        self._view = view
        self._size = len(view)
        self._at = 0

    def head(self) -> GgufHead:
        if self._take(4) != b"GGUF":
            raise GgufError("is not a GGUF file: it does not begin with GGUF")
        version = self._u32()
        if version not in _SUPPORTED_VERSIONS:
            raise GgufError(f"has GGUF version {version}; supported are {_SUPPORTED_VERSIONS}")
        num_tensors, num_pairs = self._u64(), self._u64()
        self._need(num_pairs * _SMALLEST_PAIR_BYTES)
        metadata: dict[str, GgufValue] = {}
        extents: dict[str, tuple[int, int]] = {}
        for _ in range(num_pairs):
            start = self._at
            key = self._string()
            if key in metadata:
                raise GgufError(f"has the metadata key {key} twice")
            metadata[key] = self._value(key)
            extents[key] = (start, self._at)
        for _ in range(num_tensors):
            self._take(self._u64())
            num_dimensions = self._u32()
            if num_dimensions > _MAX_DIMENSIONS:
                raise GgufError(
                    f"has a tensor of {num_dimensions} dimensions; at most {_MAX_DIMENSIONS} fit"
                )
            self._take(8 * num_dimensions + 4 + 8)
        return GgufHead(metadata, extents, self._at)

    def _value(self, key: str) -> GgufValue:
        kind = self._u32()
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key)
        return self._scalar(key, kind)

    def _scalar(self, key: str, kind: int) -> bool | int | float:
        layout = _SCALARS.get(kind)
        if layout is None:
            raise GgufError(f"gives {key} the unknown type {kind}")
        value: bool | int | float = layout.unpack(self._take(layout.size))[0]
        return value

    def _array(self, key: str) -> list[bool | int | float | str]:
        kind, count = self._u32(), self._u64()
        if kind == _STRING:
            self._need(count * 8)
            return self._strings(count)
        layout = _SCALARS.get(kind)
        if layout is None:
            raise GgufError(f"has an array {key} of the unsupported type {kind}")
        self._need(count * layout.size)
        data = self._take(count * layout.size)
        return list(struct.unpack(f"<{count}{layout.format[-1]}", data))

    def _strings(self, count: int) -> list[bool | int | float | str]:
        # The one hot loop here: a vocabulary and its merges are half a million strings.
        view, size, at = self._view, self._size, self._at
        length_at = struct.Struct("<Q").unpack_from
        result: list[bool | int | float | str] = []
        for _ in range(count):
            start = at + 8
            if start > size:
                self._need(size + 1)
            at = start + length_at(view, at)[0]
            if at > size:
                self._at = start
                self._need(at - start)
            result.append(_text(view[start:at]))
        self._at = at
        return result

    def _string(self) -> str:
        return _text(self._take(self._u64()))

    def _u32(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def _u64(self) -> int:
        return int.from_bytes(self._take(8), "little")

    def _take(self, num_bytes: int) -> bytes:
        self._need(num_bytes)
        start = self._at
        self._at += num_bytes
        return self._view[start : self._at]

    def _need(self, num_bytes: int) -> None:
        if num_bytes > self._size - self._at:
            raise GgufError(
                f"is damaged: it needs {num_bytes} bytes at offset {self._at},"
                f" and the file ends at {self._size}"
            )


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise GgufError("is damaged: a string in its metadata is not UTF-8") from error
