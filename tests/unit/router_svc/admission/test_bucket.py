"""Token buckets under a clock of the test's: never too much, and never a wait too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router_svc.admission.bucket import Bucket

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


class Clock:
    """Stands still until told otherwise."""

    def __init__(self) -> None:
        self.now = 12_345

    def __call__(self) -> int:
        return self.now


def test_a_bucket_is_full_at_first_and_refused_once_it_is_empty() -> None:
    bucket = Bucket(3, Clock())

    waits = []
    for _ in range(4):
        waits.append(bucket.wait_for(1))
        if not waits[-1]:
            bucket.take(1)

    assert waits == [0, 0, 0, 20 * SECOND]
    assert (bucket.remaining, bucket.full_in) == (0, MINUTE)


def test_it_fills_up_all_the_time_and_not_once_a_minute() -> None:
    clock = Clock()
    bucket = Bucket(60, clock)
    bucket.take(60)

    clock.now += SECOND

    assert (bucket.remaining, bucket.wait_for(1)) == (1, 0)
    assert bucket.wait_for(2) == SECOND


def test_after_exactly_the_time_it_said_the_units_are_there() -> None:
    clock = Clock()
    bucket = Bucket(7, clock)  # a rate that no whole number of nanoseconds divides
    bucket.take(7)

    wait = bucket.wait_for(5)
    clock.now += wait - 1
    early = bucket.wait_for(5)
    clock.now += 1

    assert early > 0
    assert bucket.wait_for(5) == 0


def test_what_is_given_back_never_overfills_it() -> None:
    bucket = Bucket(10, Clock())
    bucket.take(4)

    bucket.give_back(9)

    assert (bucket.remaining, bucket.full_in) == (10, 0)


def test_a_debt_is_filled_up_first() -> None:
    clock = Clock()
    bucket = Bucket(60, clock)
    bucket.take(60)

    bucket.give_back(-30)
    owing = bucket.remaining, bucket.wait_for(1)
    clock.now += 31 * SECOND

    assert owing == (0, 31 * SECOND)
    assert bucket.remaining == 1


def test_another_limit_leaves_what_was_taken_taken() -> None:
    bucket = Bucket(10, Clock())
    bucket.take(4)

    bucket.resize(100)
    larger = bucket.limit, bucket.remaining
    bucket.resize(5)

    assert larger == (100, 96)
    assert bucket.remaining == 1


def test_a_much_smaller_limit_makes_no_debt_of_what_was_allowed() -> None:
    bucket = Bucket(1000, Clock())
    bucket.take(500)

    bucket.resize(10)

    assert (bucket.remaining, bucket.wait_for(1)) == (0, 6 * SECOND)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2 * MINUTE),  # time that passes
        st.integers(1, 40),  # units that are wanted then
        st.integers(0, 40),  # units of them that are given back at once
    ),
    max_size=60,
)


@given(limit=st.integers(1, 40), steps=STEPS)
def test_no_window_sees_more_than_its_share_and_one_burst(
    limit: int, steps: list[tuple[int, int, int]]
) -> None:
    clock = Clock()
    bucket = Bucket(limit, clock)
    taken: list[tuple[int, int]] = []

    for pause, wanted, unused in steps:
        clock.now += pause
        units = min(wanted, limit)
        if not bucket.wait_for(units):
            bucket.take(units)
            bucket.give_back(min(unused, units))
            taken.append((clock.now, units - min(unused, units)))

    for first in range(len(taken)):
        used = 0
        for at, units in taken[first:]:
            used += units
            window = at - taken[first][0]
            assert used * MINUTE <= limit * (MINUTE + window)


@given(limit=st.integers(1, 10**9), taken=st.integers(0, 10**9), wanted=st.integers(1, 10**9))
def test_a_client_that_waits_as_told_is_let_in(limit: int, taken: int, wanted: int) -> None:
    clock = Clock()
    bucket = Bucket(limit, clock)
    bucket.take(min(taken, limit))

    clock.now += bucket.wait_for(min(wanted, limit))

    assert bucket.wait_for(min(wanted, limit)) == 0
