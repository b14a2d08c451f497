"""What stands behind the proxies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.held_service import HeldService, held_service
from tests.support.tiny_models import make_tiny


@pytest.fixture(scope="package")
def held_routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldService]:
    """Two routers over an engine whose steps a test can hold."""
    directory = tmp_path_factory.mktemp("held")
    model = make_tiny("llama", directory / "model", max_position_embeddings=8192)
    with held_service(model, directory) as running:
        yield running


@pytest.fixture
def service(held_routers: HeldService) -> Iterator[HeldService]:
    """The same, its gate open; after the test nothing may run or hold blocks."""
    yield held_routers
    held_routers.gate.open()
    (router, _) = held_routers.routers
    assert router.wait_until(held_routers.idle, 30), "something still runs, or holds blocks"
