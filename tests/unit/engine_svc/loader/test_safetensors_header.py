"""A safetensors file is believed only as far as its size bears it out."""

from __future__ import annotations

import struct

import orjson
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from engine_svc.loader.safetensors_header import read_header
from engine_svc.models.errors import ModelError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}
    save_file(tensors, path, metadata={"format": "pt"})
    return path


def rewrite(path, change, data=None):
    """Writes the header as `change` leaves it, before the same or other data."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = orjson.loads(raw[8 : 8 + length])
    change(header)
    new = orjson.dumps(header)
    rest = raw[8 + length :] if data is None else data
    path.write_bytes(struct.pack("<Q", len(new)) + new + rest)


def test_a_whole_file_gives_its_tensors(file):
    entries = read_header(file)

    assert {name: (e.dtype, e.shape, e.num_bytes) for name, e in entries.items()} == {
        "a": ("F32", (2, 3), 24),
        "b": ("BF16", (4,), 8),
    }


@pytest.mark.parametrize("change", [-1, -20, 7])
def test_a_file_of_another_size_is_refused_with_both_sizes(file, change):
    whole = file.read_bytes()
    file.write_bytes(whole[:change] if change < 0 else whole + b"\0" * change)

    with pytest.raises(ModelError) as error:
        read_header(file)

    assert str(error.value) == (
        f"model.safetensors: expected {len(whole)} bytes by its header, "
        f"the file has {len(whole) + change}"
    )


def test_a_header_longer_than_the_file_is_refused_before_it_is_read(file):
    file.write_bytes(struct.pack("<Q", 2**62) + file.read_bytes()[8:])

    with pytest.raises(ModelError, match=f"its header takes {2**62} bytes"):
        read_header(file)


def test_a_file_shorter_than_its_first_field_is_refused(file):
    file.write_bytes(b"\x01\x02")

    with pytest.raises(ModelError, match="expected at least 8 bytes, got 2"):
        read_header(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["a"].update(shape=[2, 4]), r"a F32\[2, 4\] takes 32 bytes, .* give 24"),
        (lambda h: h["a"].update(shape=[2**40, 2**40]), "a F32.* takes"),
        (lambda h: h["a"].update(shape=[-2, -3]), "shape and data_offsets of a"),
        (lambda h: h["a"].update(dtype="F31"), "unknown dtype 'F31'"),
        (lambda h: h["a"].pop("dtype"), "the entry of a must have"),
        (lambda h: h.update(c=dict(h["b"])), "begins at byte"),
        (lambda h: h.pop("a" if h["a"]["data_offsets"][0] == 0 else "b"), "begins at byte"),
    ],
    ids=["shape", "overflow", "negative", "dtype", "missing key", "overlap", "gap"],
)
def test_an_entry_that_cannot_be_is_refused_by_name(file, change, message):
    rewrite(file, change)

    with pytest.raises(ModelError, match=message):
        read_header(file)


def test_a_header_that_is_not_json_is_refused(file):
    raw = bytearray(file.read_bytes())
    raw[8] = ord("x")
    file.write_bytes(raw)

    with pytest.raises(ModelError, match="header is not JSON"):
        read_header(file)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_gives_another_error_or_bytes_outside_the_file(file, data):
    whole = file.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(max_size=9)) + whole[at + 1 :]
    damaged_file = file.with_name("damaged.safetensors")
    damaged_file.write_bytes(damaged)

    try:
        entries = read_header(damaged_file)
    except ModelError:
        return

    assert sum(entry.num_bytes for entry in entries.values()) < len(damaged)
