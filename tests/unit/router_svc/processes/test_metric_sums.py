"""Metrics of several processes shown as one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from router_svc.metrics import merged_exposition
from router_svc.processes.sums import Totals, from_json, to_json


class Process:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = Counter("calls", "Calls.", ["rpc"], registry=self.registry)
        self.running = Gauge("running", "Running.", registry=self.registry)
        self.seconds = Histogram("seconds", "Time.", buckets=(1, 2), registry=self.registry)

    def told(self) -> list:
        """What travels."""
        return to_json(self.registry.collect())


def _values(totals: Totals) -> dict[str, float]:
    text = merged_exposition(from_json(totals.sum()), []).decode()
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def _two() -> tuple[Process, Process, Totals]:
    one, two, totals = Process(), Process(), Totals()
    one.calls.labels("a").inc(2)
    two.calls.labels("a").inc(3)
    two.calls.labels("b").inc()
    one.running.set(4)
    two.running.set(5)
    one.seconds.observe(0.5)
    two.seconds.observe(1.5)
    totals.update(1, one.told())
    totals.update(2, two.told())
    return one, two, totals


def test_one_process_is_shown_as_it_shows_itself() -> None:
    one, totals = Process(), Totals()
    one.calls.labels("a").inc()
    totals.update(1, one.told())

    assert merged_exposition(from_json(totals.sum()), []) == generate_latest(one.registry)


def test_counters_gauges_and_buckets_add_up_label_by_label() -> None:
    values = _values(_two()[2])

    assert values['calls_total{rpc="a"}'] == 5
    assert values['calls_total{rpc="b"}'] == 1
    assert values["running"] == 9
    assert values['seconds_bucket{le="1.0"}'] == 1
    assert values['seconds_bucket{le="2.0"}'] == 2
    assert (values["seconds_count"], values["seconds_sum"]) == (2, 2.0)


def test_a_series_began_with_the_first_process() -> None:
    one, _, totals = _two()

    created = next(s.value for f in one.registry.collect() for s in f.samples if "_cr" in s.name)
    assert _values(totals)['calls_created{rpc="a"}'] == created


def test_counts_of_a_dead_process_stay_and_its_gauges_vanish() -> None:
    _, two, totals = _two()

    totals.forget(1)

    values = _values(totals)
    assert values['calls_total{rpc="a"}'] == 5
    assert values["running"] == 5
    two.calls.labels("a").inc()
    totals.update(2, two.told())
    assert _values(totals)['calls_total{rpc="a"}'] == 6


def test_a_process_that_is_told_of_again_does_not_count_twice() -> None:
    one, _, totals = _two()

    totals.update(1, one.told())

    assert _values(totals)['calls_total{rpc="a"}'] == 5
