"""Fingerprints change with what they stand for, and with nothing else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from gguf import GGUFWriter
from octavo.fingerprint import tokenizer_sha256, weights_version

if TYPE_CHECKING:
    from pathlib import Path


def write_safetensors(file: Path, *, num_values: int = 4, fill: bytes = b"\0") -> None:
    size = 4 * num_values
    header = {"w": {"dtype": "F32", "shape": [num_values], "data_offsets": [0, size]}}
    encoded = json.dumps(header).encode()
    file.write_bytes(len(encoded).to_bytes(8, "little") + encoded + fill * size)


def write_gguf(path: Path, *, name: str = "m", eos: int = 2) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_tokenizer_model("gpt2")
    writer.add_eos_token_id(eos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "tokenizer.json").write_text("{}")
    write_safetensors(directory / "model.safetensors")
    return directory


def test_a_copy_has_the_same_fingerprints(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "elsewhere")

    assert weights_version(copy) == weights_version(model)
    assert tokenizer_sha256(copy) == tokenizer_sha256(model)


def test_only_the_tokenisers_fingerprint_follows_the_tokeniser(model: Path) -> None:
    weights, tokenizer = weights_version(model), tokenizer_sha256(model)
    (model / "tokenizer.json").write_text("{ }")

    assert weights_version(model) == weights
    assert tokenizer_sha256(model) != tokenizer


@pytest.mark.parametrize(
    "change",
    [
        lambda model: (model / "config.json").write_text('{"a": 1}'),
        lambda model: write_safetensors(model / "model.safetensors", num_values=5),
        lambda model: write_safetensors(model / "model-2.safetensors"),
        lambda model: (model / "model.safetensors.index.json").write_text("{}"),
    ],
)
def test_the_weights_version_follows_configuration_and_tensors(model: Path, change) -> None:
    before = weights_version(model)
    change(model)

    assert weights_version(model) != before


def test_weights_are_not_read(model: Path) -> None:
    before = weights_version(model)
    write_safetensors(model / "model.safetensors", fill=b"\1")

    assert weights_version(model) == before


def test_a_directory_without_a_tokeniser_has_nothing_to_agree_on(model: Path) -> None:
    (model / "tokenizer.json").unlink()

    assert tokenizer_sha256(model) == ""


def test_a_ggufs_tokeniser_is_its_tokenizer_metadata(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    renamed = write_gguf(tmp_path / "b.gguf", name="other")
    other_end = write_gguf(tmp_path / "c.gguf", eos=3)

    assert tokenizer_sha256(renamed) == tokenizer_sha256(path)
    assert tokenizer_sha256(other_end) != tokenizer_sha256(path)
    assert weights_version(renamed) != weights_version(path)


def test_a_header_longer_than_its_file_is_refused(model: Path) -> None:
    (model / "model.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{}")

    with pytest.raises(ValueError, match=rf"model\.safetensors is damaged.*{2**40}.*10"):
        weights_version(model)
