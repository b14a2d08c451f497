"""Helm, in an environment of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.environment import client_python
from tests.clients.running import need
from tests.helm.chart import ChartTool


@pytest.fixture(scope="session")
def chart() -> Iterator[ChartTool]:
    """The chart, ready to be rendered."""
    tool = ChartTool(need(lambda: client_python("helm")))
    yield tool
    tool.close()
