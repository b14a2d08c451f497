"""Reads a GGUF file's header and checks it against the file's real size before anything is mapped.

    | magic, version, counts | metadata | name, dims, type, offset of each tensor | padding | data |

The metadata is read by `octavo.gguf_metadata`; types and block sizes are the gguf package's, whose
own reader trusts the table of tensors.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from octavo.gguf_metadata import GgufError, read_gguf_head

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MAX_DIMS = 4
_COUNTS_END = 24  # magic, version, number of tensors, number of metadata pairs
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: its type, its shape as torch has it (rows first), and its bytes in the file."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A file's metadata and tensors."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]


def read_gguf_header(path: Path) -> GgufHeader:
    """Raises ModelError naming the file and, for a wrong size, the expected and the real one."""
    try:
        head = read_gguf_head(path)
    except GgufError as error:
        raise ModelError(str(error)) from error
    metadata = {key: _shortest(value) for key, value in head.metadata.items()}
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ModelError(f"{path.name}: general.alignment must be a power of two")
    table_start = max((end for _, end in head.extents.values()), default=_COUNTS_END)
    with path.open("rb") as file:
        file.seek(table_start)
        table = file.read(head.num_bytes - table_start)
    infos = _read_table(path.name, table)
    data_start = _aligned(head.num_bytes, alignment)
    size = path.stat().st_size
    return GgufHeader(metadata, _place(path.name, infos, data_start, alignment, size))


@dataclass(frozen=True, slots=True)
class _Info:
    """A row of the table; `offset` counts from the start of the data."""

    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int


def _read_table(file: str, table: bytes) -> list[_Info]:
    """The rows of a table whose extent is known to lie within the file."""
    infos: list[_Info] = []
    at = 0
    while at < len(table):
        (length,) = struct.unpack_from("<Q", table, at)
        name = table[at + 8 : at + 8 + length].decode(errors="replace")
        at += 8 + length
        (num_dims,) = struct.unpack_from("<I", table, at)
        if not 1 <= num_dims <= _MAX_DIMS:
            raise ModelError(f"{file}: {name} has {num_dims} dimensions")
        *dims, kind, offset = struct.unpack_from(f"<{num_dims}QIQ", table, at + 4)
        at += 4 + struct.calcsize(f"<{num_dims}QIQ")
        try:
            known = GGMLQuantizationType(kind)
        except ValueError as error:
            raise ModelError(f"{file}: {name} has the unknown type {kind}") from error
        infos.append(_Info(name, known, tuple(reversed(dims)), offset))
    return infos


def _place(
    file: str, infos: list[_Info], data_start: int, alignment: int, size: int
) -> dict[str, GgufTensor]:
    """Gives each tensor its bytes; they must follow each other up to the file's end."""
    tensors: dict[str, GgufTensor] = {}
    end = data_start
    for info in sorted(infos, key=lambda info: info.offset):
        if info.name in tensors:
            raise ModelError(f"{file}: the tensor {info.name} occurs twice")
        block, block_bytes = GGML_QUANT_SIZES[info.kind]
        if info.shape[-1] % block:
            raise ModelError(
                f"{file}: rows of {info.name} ({info.shape[-1]} elements) are not whole "
                f"{info.kind.name} blocks of {block}"
            )
        begin, expected = data_start + info.offset, _aligned(end, alignment)
        if begin != expected:
            raise ModelError(f"{file}: {info.name} begins at byte {begin}, not at {expected}")
        num_bytes = math.prod(info.shape) // block * block_bytes
        tensors[info.name] = GgufTensor(info.kind, info.shape, begin, num_bytes)
        end = begin + num_bytes
    padded = _aligned(end, alignment)
    if not end <= size <= padded:
        raise ModelError(f"{file}: expected {padded} bytes by its header, the file has {size}")
    return tensors


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _shortest(value: Any) -> Any:
    """A float32 as the shortest decimal that gives it, which is what was written: 1e-5, say."""
    if isinstance(value, float) and np.float32(value) == value:
        return float(str(np.float32(value)))
    return value
