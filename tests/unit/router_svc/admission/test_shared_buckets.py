"""Limits that several processes share: together as one, also when one of them is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from router_svc.admission.shared_buckets import SharedBuckets, new_table

LIMIT = 4000

# A process that draws from the bucket while time stands still, and says what it has got.
DRAWS_ALL = """
while not bucket.try_take(1):
    taken += 1
print(taken)
"""
SAYS_EACH = """
while not bucket.try_take(1):
    print(".", end="", flush=True)
"""
# It stops where it holds the lock: a clock is read nowhere else.
HOLDS_THE_LOCK = """
def clock():
    print("held", flush=True)
    threading.Event().wait()
SharedBuckets(fd, clock).bucket("acme/requests", limit).try_take(1)
"""


@pytest.fixture
def table() -> Iterator[int]:
    fd = new_table()
    yield fd
    os.close(fd)


def drawing(fd: int, what: str) -> subprocess.Popen[str]:
    """Another process that maps the same table."""
    head = f"""
import threading
from router_svc.admission.shared_buckets import SharedBuckets
fd, limit, taken = {fd}, {LIMIT}, 0
bucket = SharedBuckets(fd, lambda: 0).bucket("acme/requests", limit)
"""
    return subprocess.Popen(
        [sys.executable, "-c", head + what], pass_fds=(fd,), stdout=subprocess.PIPE, text=True
    )


def buckets(fd: int) -> SharedBuckets:
    return SharedBuckets(fd, lambda: 0)


def test_processes_that_draw_at_once_get_the_limit_together(table: int) -> None:
    processes = [drawing(table, DRAWS_ALL) for _ in range(3)]

    taken = [int(process.communicate()[0]) for process in processes]

    assert sum(taken) == LIMIT
    assert buckets(table).bucket("acme/requests", LIMIT).remaining == 0


def test_a_process_that_is_killed_with_the_lock_leaves_it_free_and_the_count_right(
    table: int,
) -> None:
    bucket = buckets(table).bucket("acme/requests", LIMIT)
    bucket.try_take(7)
    with drawing(table, HOLDS_THE_LOCK) as process:
        assert process.stdout is not None
        process.stdout.readline()

        process.kill()

    assert bucket.try_take(1) == 0
    assert bucket.remaining == LIMIT - 8


def test_a_process_that_is_killed_while_it_draws_loses_no_count(table: int) -> None:
    with drawing(table, SAYS_EACH) as process:
        assert process.stdout is not None
        told = len(process.stdout.read(100))

        process.kill()
        told += len(process.stdout.read())

    taken = LIMIT - buckets(table).bucket("acme/requests", LIMIT).remaining
    assert taken - told in (0, 1)  # the last one may be taken and not told


def test_names_do_not_share_and_a_new_limit_is_everybodys(table: int) -> None:
    ours, theirs = buckets(table), buckets(table)
    one = ours.bucket("acme/requests", 10)
    other = theirs.bucket("acme/requests", 10)
    other.try_take(4)
    ours.bucket("acme/tokens", 10**12).try_take(10**12)

    one.resize(100)

    assert other.standing[:2] == (100, 96)
    assert theirs.bucket("acme/tokens", 10**12).remaining == 0


def test_a_debt_is_shared_too(table: int) -> None:
    one, other = (buckets(table).bucket("acme/tokens", 60) for _ in range(2))

    one.give_back(-90)

    assert (other.remaining, other.try_take(1)) == (0, 31_000_000_000)
