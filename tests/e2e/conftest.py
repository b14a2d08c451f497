"""The clients that end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awkward_model import make_awkward
from tests.support.public_api import MODEL, PublicApi
from tests.support.server import RunningServer, running_server


@pytest.fixture(scope="module")
def api(server: RunningServer) -> Iterator[PublicApi]:
    """A client of the server with SmolLM2."""
    client = PublicApi(server)
    yield client
    client.close()


@pytest.fixture(scope="session")
def float32_server(
    smollm2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """SmolLM2 on the reference back end, whose answers are transformers' to the last token.

    It is several times slower than `server`: for tests that compare with transformers alone. Two
    threads of torch that wait for each other beside other tests' processes take longer than one.
    """
    log = tmp_path_factory.mktemp("float32") / "log"
    args = ("--dtype", "float32", "--served-model-name", "smollm2", "--max-model-len", "512")
    args += ("--threads", "1")
    with running_server(smollm2_checkpoint, *args, log=log) as running:
        yield running


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublicApi]:
    """A client of a server with the awkward tiny model (tests/support/awkward_model.py)."""
    directory = tmp_path_factory.mktemp("tiny")
    model = make_awkward(directory / "model")
    args = ("--served-model-name", MODEL, "--dtype", "bfloat16")
    with running_server(model, *args, log=directory / "log") as server:
        client = PublicApi(server)
        yield client
        client.close()
