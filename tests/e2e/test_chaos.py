"""A short storm of what `make chaos` does for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import Plan, run
from tests.support.tiny_models import make_tiny

FAULTS = (
    "kill -9 of an engine",
    "SIGSTOP and SIGCONT",
    "drain and restart of an engine",
    "connections reset",
    "kill -9 of a router",
    "more work than KV blocks",
    "half-open client",
    "client that reads nothing",
)


@pytest.mark.timeout(600)
async def test_nothing_is_lost_or_altered_in_a_storm(tmp_path: Path) -> None:
    model = make_tiny("llama", tmp_path / "model", max_position_embeddings=1024)
    plan = Plan(
        seed=5,
        num_requests=100,
        num_faults=len(FAULTS),
        seconds=300,
        num_clients=6,
        num_different=50,
        weights=dict.fromkeys(FAULTS, 1),
        pause=(0.2, 0.6),
        longest_freeze=3.0,
    )

    report = await run(model, tmp_path, plan)

    assert report.everything == []
    assert report.ledger.sent >= plan.num_requests
    assert set(report.faults.done) == set(FAULTS)
    assert report.faults.num_preempted > 0
