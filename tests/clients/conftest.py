"""The servers that clients talk to, beside the one with SmolLM2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import RunningServer, running_server


@pytest.fixture(scope="session")
def embedder(
    minilm_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """The real server with all-MiniLM-L6-v2 as `minilm`."""
    log = tmp_path_factory.mktemp("embedder") / "log"
    with running_server(minilm_checkpoint, "--served-model-name", "minilm", log=log) as running:
        yield running
