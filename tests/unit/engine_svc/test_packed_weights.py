"""The fingerprint that packed weights are kept under."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from octavo.cache_dir import default_cache_dir

from engine_svc.packed_weights import content_fingerprint, packed_weights_cache

SIZE = 1 << 20
TIME = (1_700_000_000, 1_700_000_000)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    os.utime(path, TIME)
    return path


def test_the_same_files_have_the_same_fingerprint(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", bytes(SIZE))

    assert content_fingerprint(tmp_path, "v") == content_fingerprint(tmp_path, "v")


@pytest.mark.parametrize("at", [0, 300_000, SIZE - 1])
def test_other_weights_of_the_same_size_and_time_have_another(tmp_path: Path, at: int) -> None:
    file = write(tmp_path / "model.gguf", bytes(SIZE))
    before = content_fingerprint(file, "v")

    write(file, bytes(at) + b"\1" + bytes(SIZE - at - 1))

    assert content_fingerprint(file, "v") != before


def test_a_file_that_was_written_anew_has_another(tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf", bytes(SIZE))
    before = content_fingerprint(file, "v")

    os.utime(file, (TIME[0], TIME[1] + 1))

    assert content_fingerprint(file, "v") != before


def test_another_configuration_has_another(tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf", b"small")

    assert content_fingerprint(file, "v") != content_fingerprint(file, "w")


def test_entries_lie_in_the_cache_directory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    file = write(tmp_path / "model.gguf", b"small")

    cache = packed_weights_cache(file, "v", lambda _: None)

    assert cache.directory == default_cache_dir() / "packed" == tmp_path / "cache" / "packed"
