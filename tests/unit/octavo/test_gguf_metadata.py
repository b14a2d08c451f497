"""The head of a GGUF file: read fast, and never trusted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from octavo.gguf_metadata import GgufError, read_gguf_head

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def small_gguf(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_bool("flag", True)
    writer.add_uint8("u8", 255)
    writer.add_int64("i64", -5)
    writer.add_float64("f64", 0.1)
    writer.add_array("names", ["a", "", "日本"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_tensor("t", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def head_of(*parts: bytes) -> bytes:
    return b"GGUF" + b"".join(parts)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def test_values_of_all_kinds_are_read(small_gguf: Path) -> None:
    head = read_gguf_head(small_gguf)

    assert head.metadata == {
        "general.architecture": "llama",
        "flag": True,
        "u8": 255,
        "i64": -5,
        "f64": 0.1,
        "names": ["a", "", "日本"],
        "numbers": [1, -2, 3],
    }
    assert head.num_bytes <= small_gguf.stat().st_size - 4 * 32 * 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PK\3\4....", "not a GGUF file"),
        (head_of(u32(1), u64(0), u64(0)), "version 1"),
        (head_of(u32(3), u64(0), u64(2**60)), "needs .* bytes"),
        (head_of(u32(3), u64(2**60), u64(0)), "needs 8 bytes at offset 24"),
        (head_of(u32(3), u64(0), u64(1), u64(2**62), b"x" * 9), "needs 4611686018427387904 bytes"),
        (head_of(u32(3), u64(0), u64(1), u64(1), b"k", u32(77), b"x" * 9), "unknown type 77"),
        (
            head_of(u32(3), u64(0), u64(1), u64(1), b"k", u32(9), u32(8), u64(2**61)),
            "needs .* bytes",
        ),
        (
            head_of(u32(3), u64(0), u64(1), u64(1), b"k", u32(9), u32(8), u64(1), u64(2**40)),
            "needs .* bytes",
        ),
        (
            head_of(u32(3), u64(0), u64(1), u64(1), b"k", u32(9), u32(9), u64(1), b"x" * 9),
            "unsupported type 9",
        ),
        (head_of(u32(3), u64(0), u64(2), *[u64(1), b"k", u32(0), b"x"] * 2), "key k twice"),
        (head_of(u32(3), u64(0), u64(1), u64(1), b"\xff", u32(0), b"x"), "not UTF-8"),
        (head_of(u32(3), u64(1), u64(0), u64(1), b"t", u32(2**31)), "dimensions"),
    ],
)
def test_a_damaged_head_is_refused_before_anything_is_allocated(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)

    with pytest.raises(GgufError, match=rf"bad\.gguf.*{message}"):
        read_gguf_head(path)


@given(cut=st.integers(0, 10**6), position=st.integers(0, 10**6), byte=st.integers(0, 255))
@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_damage_is_an_error_or_a_head_inside_the_file(
    small_gguf: Path, tmp_path: Path, cut: int, position: int, byte: int
) -> None:
    content = bytearray(small_gguf.read_bytes())
    content[position % len(content)] = byte
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content[: 1 + cut % len(content)])

    try:
        head = read_gguf_head(path)
    except GgufError:
        return

    assert head.num_bytes <= path.stat().st_size
