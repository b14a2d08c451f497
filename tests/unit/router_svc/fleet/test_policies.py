"""Who gets a request, and why."""

from __future__ import annotations

from typing import Any

from router_svc.fleet.policies import Candidate, least_loaded, prefix_aware, round_robin


def candidate(engine: str, **known: Any) -> Candidate:
    defaults = {
        "queued_tokens": 0,
        "num_running": 0,
        "cached_tokens": 0,
        "kv_usage": 0.0,
        "ready_seconds": 3600.0,
    }
    return Candidate(engine, **(defaults | known))


def test_each_in_turn() -> None:
    three = [candidate("a"), candidate("b"), candidate("c")]

    assert [round_robin(three, 100, turn)[0].candidate.engine for turn in range(4)] == [*"abca"]


def test_load_counts_in_tokens_not_in_requests() -> None:
    many_short = candidate("a", queued_tokens=50, num_running=3)
    one_long = candidate("b", queued_tokens=5000, num_running=1)

    assert least_loaded([one_long, many_short], 100, 0)[0].candidate.engine == "a"


def test_among_equals_each_gets_its_turn() -> None:
    two = [candidate("a"), candidate("b")]

    assert {least_loaded(two, 10, turn)[0].candidate.engine for turn in range(2)} == {"a", "b"}


def test_a_cached_prefix_is_worth_a_shorter_queue() -> None:
    cached = candidate("a", cached_tokens=400, queued_tokens=200)
    idle = candidate("b")

    assert prefix_aware([idle, cached], 500, 0)[0].candidate.engine == "a"


def test_a_hot_prefix_spreads_once_waiting_costs_more_than_computing() -> None:
    cached = candidate("a", cached_tokens=400, queued_tokens=800)
    idle = candidate("b")

    assert prefix_aware([idle, cached], 500, 0)[0].candidate.engine == "b"


def test_a_wait_as_long_as_computing_is_no_reason_for_a_copy() -> None:
    cached = candidate("a", cached_tokens=400, queued_tokens=450)
    idle = candidate("b")

    assert prefix_aware([idle, cached], 500, 0)[0].candidate.engine == "a"


def test_of_two_that_have_a_prefix_the_one_that_did_less_gets_it() -> None:
    busy = candidate("a", cached_tokens=400, recent_tokens=3000)
    idle = candidate("b", cached_tokens=400, recent_tokens=2900)

    assert [prefix_aware([busy, idle], 500, turn)[0].candidate.engine for turn in (0, 1)] == [*"bb"]


def test_a_prefix_moves_off_an_engine_that_did_much_more_than_others() -> None:
    busy = candidate("a", cached_tokens=200, recent_tokens=3000)
    idle = candidate("b", recent_tokens=1000)

    assert prefix_aware([busy, idle], 500, 0)[0].candidate.engine == "b"


def test_an_engine_without_a_past_does_not_get_everything() -> None:
    old = candidate("a", cached_tokens=400, recent_tokens=1_000_000)
    new = candidate("b", queued_tokens=500)

    assert prefix_aware([old, new], 500, 0)[0].candidate.engine == "a"


def test_a_new_engine_starts_slowly() -> None:
    old = candidate("a", queued_tokens=300)
    new = candidate("b", ready_seconds=1.0)

    assert least_loaded([old, new], 100, 0)[0].candidate.engine == "a"


def test_where_all_engines_are_new_none_starts_slowly() -> None:
    first = candidate("a", queued_tokens=300, ready_seconds=4.0)
    second = candidate("b", ready_seconds=1.0)

    assert least_loaded([first, second], 100, 0)[0].candidate.engine == "b"


def test_the_reason_names_what_was_weighed() -> None:
    cached = candidate("a", cached_tokens=400, queued_tokens=200, ready_seconds=5.0)
    idle = candidate("b", recent_tokens=60)

    reasons = [ranked.reason for ranked in prefix_aware([cached, idle], 500, 0)]

    assert reasons == [
        "200 tokens before it, 100 of its own (400 cached), slow start at 50%",
        "0 tokens before it, 500 of its own, 200 for a copy of what another has, 30 for work done",
    ]
