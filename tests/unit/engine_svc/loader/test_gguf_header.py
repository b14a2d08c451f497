"""A GGUF file is believed only as far as its size bears it out."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_svc.loader.gguf_header import read_gguf_header
from engine_svc.models.errors import ModelError
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_models import tiny_model


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a small file."""
    model = tiny_model("qwen2", num_hidden_layers=1, hidden_size=32, num_attention_heads=2)
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return write_tiny_gguf(model, path, with_tokenizer=False).read_bytes()


@pytest.fixture
def file(whole, tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(whole)
    return path


def test_tensors_lie_within_the_file(file, whole):
    header = read_gguf_header(file)

    assert header.metadata["qwen2.embedding_length"] == 32
    assert header.metadata["qwen2.attention.layer_norm_rms_epsilon"] == 1e-6
    assert header.tensors["token_embd.weight"].shape == (296, 32)
    assert all(t.offset + t.num_bytes <= len(whole) for t in header.tensors.values())


@pytest.mark.parametrize("change", [-1024, -4, 7, 4096])
def test_a_file_of_another_size_is_refused_with_both_sizes(file, whole, change):
    file.write_bytes(whole[:change] if change < 0 else whole + b"\0" * change)

    with pytest.raises(ModelError) as error:
        read_gguf_header(file)

    assert "tiny.gguf" in str(error.value)
    assert f"expected {len(whole)} bytes" in str(error.value)
    assert f"the file has {len(whole) + change}" in str(error.value)


def test_a_file_cut_in_its_header_is_refused(file, whole):
    file.write_bytes(whole[:200])

    with pytest.raises(ModelError, match=r"tiny\.gguf .*file ends at 200"):
        read_gguf_header(file)


@pytest.mark.parametrize(("what", "offset"), [("tensors", 8), ("metadata", 16)])
def test_a_count_that_cannot_fit_is_refused(file, whole, what, offset):
    file.write_bytes(whole[:offset] + struct.pack("<Q", 2**60) + whole[offset + 8 :])

    with pytest.raises(ModelError, match=r"tiny\.gguf"):
        read_gguf_header(file)


def test_another_format_is_refused(file, whole):
    file.write_bytes(b"GGML" + whole[4:])

    with pytest.raises(ModelError, match="not a GGUF file"):
        read_gguf_header(file)


def field_after(whole, name):
    """Where the number of dimensions of the tensor `name` stands."""
    key = struct.pack("<Q", len(name)) + name.encode()
    return whole.index(key) + len(key)


@pytest.mark.parametrize(
    ("skip", "form", "value", "message"),
    [
        (0, "<I", 9, "9 dimensions"),
        (4, "<Q", 2**50, "begins at byte|expected"),
        (4, "<Q", 2**64 - 1, "begins at byte|expected"),
        (20, "<I", 999, "unknown type 999"),
        (20, "<I", 12, r"not whole Q4_K blocks of 256"),
        (24, "<Q", 2**63, "begins at byte"),
        (24, "<Q", 32, "begins at byte"),
    ],
)
def test_a_tensor_that_cannot_be_is_refused(file, whole, skip, form, value, message):
    """Number of dimensions, a size, the type and the offset, in the order of the format."""
    at = field_after(whole, "blk.0.ffn_up.weight") + skip
    file.write_bytes(whole[:at] + struct.pack(form, value) + whole[at + struct.calcsize(form) :])

    with pytest.raises(ModelError, match=message):
        read_gguf_header(file)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 3000), junk=st.binary(min_size=1, max_size=9))
def test_no_damage_gives_another_error_or_bytes_outside_the_file(file, whole, at, junk):
    damaged = whole[:at] + junk + whole[at + len(junk) :]
    file.write_bytes(damaged)

    try:
        header = read_gguf_header(file)
    except ModelError:
        return

    assert all(t.offset + t.num_bytes <= len(damaged) for t in header.tensors.values())
