"""Checks a safetensors file against its own header before anything is allocated or mapped.

    | header length, u64 | header: JSON {name: {dtype, shape, data_offsets}} | data |

Format: https://huggingface.co/docs/safetensors. A file that is cut short, or longer than it says,
would otherwise load as garbage, so that both are refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_PREFIX = struct.Struct("<Q")

_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: its type by safetensors' name, its shape, and where its bytes are in the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        """Bytes in the file."""
        return self.end - self.begin


def read_header(path: Path, max_bytes: int = _MAX_HEADER_BYTES) -> dict[str, TensorEntry]:
    """The tensors of a file, by name, whose header has at most `max_bytes`.

    Raises ModelError naming the file, and where a size is wrong the expected and the real one.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size:
            raise ModelError(f"{path.name}: expected at least {_PREFIX.size} bytes, got {size}")
        (length,) = _PREFIX.unpack(prefix)
        if length > max_bytes or _PREFIX.size + length > size:
            raise ModelError(
                f"{path.name}: its header takes {length} bytes (the limit is {max_bytes}), "
                f"but the file has {size}"
            )
        raw = file.read(length)
    try:
        header = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ModelError(f"{path.name}: its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{path.name}: its header is not an object")
    data_start = _PREFIX.size + length
    entries = {
        name: _entry(path.name, name, value, data_start)
        for name, value in header.items()
        if name != "__metadata__"
    }
    _check_coverage(path.name, entries, data_start, size)
    return entries


def _entry(file: str, name: str, value: Any, data_start: int) -> TensorEntry:
    if not isinstance(value, Mapping) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ModelError(f"{file}: the entry of {name} must have dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ModelError(f"{file}: {name} has the unknown dtype {dtype!r}")
    if not _is_sizes(shape) or not _is_sizes(offsets) or len(offsets) != 2:
        raise ModelError(f"{file}: shape and data_offsets of {name} must be lists of sizes")
    begin, end = offsets
    expected = math.prod(shape) * _BITS[dtype] // 8
    if end - begin != expected:
        raise ModelError(
            f"{file}: {name} {dtype}{shape} takes {expected} bytes, its offsets give {end - begin}"
        )
    return TensorEntry(dtype, tuple(shape), data_start + begin, data_start + end)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)


def _check_coverage(
    file: str, entries: Mapping[str, TensorEntry], data_start: int, size: int
) -> None:
    """Tensors must follow each other without gap or overlap, up to the file's last byte."""
    end = data_start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise ModelError(
                f"{file}: {name} begins at byte {entry.begin - data_start} of the data, not at "
                f"{end - data_start}"
            )
        end = entry.end
    if end != size:
        raise ModelError(f"{file}: expected {end} bytes by its header, the file has {size}")
