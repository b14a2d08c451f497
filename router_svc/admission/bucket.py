"""A token bucket, full at first and filled up all the time.

It counts in whole numbers, so no rounding ever lets more through or makes a wait too short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MINUTE = 60_000_000_000  # nanoseconds; also what one unit weighs in the level


class Standing(NamedTuple):
    """A bucket at one instant: whole units, and nanoseconds until it is full."""

    limit: int
    remaining: int
    full_in: int


class State(NamedTuple):
    """All that a bucket is: units a minute, what it holds, and the instant of that.

    `level` is in units × the nanoseconds of a minute, below 0 in debt; `filled_at` nanoseconds.
    """

    limit: int
    level: int
    filled_at: int


class Bucket:
    """Holds `limit` units, and gets as many a minute. `clock` gives nanoseconds.

    In any span of m minutes at most limit × (1 + m) units are taken, but for debts (`give_back`).
    """

    def __init__(self, limit: int, clock: Callable[[], int]) -> None:
        self._limit = limit
        self._clock = clock
        self._filled_at = clock()
        self._level = limit * _MINUTE

    @property
    def state(self) -> State:
        """To keep elsewhere, and to go on from."""
        return State(self._limit, self._level, self._filled_at)

    @state.setter
    def state(self, state: State) -> None:
        self._limit, self._level, self._filled_at = state

    @property
    def limit(self) -> int:
        """What it holds when full, and gets in a minute."""
        return self._limit

    @property
    def remaining(self) -> int:
        """Whole units that can be taken now."""
        return max(0, self._filled() // _MINUTE)

    @property
    def full_in(self) -> int:
        """Nanoseconds until it is full."""
        return -(-(self._limit * _MINUTE - self._filled()) // self._limit)

    def wait_for(self, units: int) -> int:
        """Nanoseconds until so many units, at most `limit`, can be taken; 0 is now."""
        return max(0, -(-(units * _MINUTE - self._filled()) // self._limit))

    def try_take(self, units: int) -> int:
        """Takes units, at most `limit`, and returns 0; or takes none, see `wait_for`."""
        if not (wait := self.wait_for(units)):
            self.take(units)
        return wait

    @property
    def standing(self) -> Standing:
        """What a client gets to see of it."""
        return Standing(self._limit, self.remaining, self.full_in)

    def take(self, units: int) -> None:
        """Takes units, which `wait_for` said are there."""
        self._level = self._filled() - units * _MINUTE

    def give_back(self, units: int) -> None:
        """Puts units back; fewer than none are a debt, which is filled up first."""
        self._level = min(self._limit * _MINUTE, self._filled() + units * _MINUTE)

    def resize(self, limit: int) -> None:
        """Changes the limit; what was taken stays taken, but is no debt of a smaller limit's."""
        level = self._filled()
        moved = level + (limit - self._limit) * _MINUTE
        self._level = max(moved, min(level, 0))
        self._limit = limit

    def _filled(self) -> int:
        now = self._clock()
        gained = (now - self._filled_at) * self._limit
        self._level = min(self._limit * _MINUTE, self._level + gained)
        self._filled_at = now
        return self._level
