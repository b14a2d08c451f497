"""Fixtures of the kernels' tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def num_threads(request: pytest.FixtureRequest):
    """Runs the test with this many threads (an indirect parameter) and restores the number."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
