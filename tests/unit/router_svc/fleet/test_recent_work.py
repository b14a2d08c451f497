"""How long an engine's work is held against it."""

from __future__ import annotations

import math

import pytest

from router_svc.fleet.member import RecentWork


def test_work_counts_in_full_when_it_is_new() -> None:
    work = RecentWork(lambda: 0.0)

    work.add(100)
    work.add(20)

    assert work.tokens == 120


def test_work_is_forgotten_little_by_little() -> None:
    now = [0.0]
    work = RecentWork(lambda: now[0])

    work.add(100)
    now[0] = 30.0
    work.add(7)

    assert work.tokens == pytest.approx(100 / math.e + 7)
