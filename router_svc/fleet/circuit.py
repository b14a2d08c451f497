"""When not to send anything to an engine, and when not to try again.

Only an engine's own failures count: a client's error says nothing about who answered it. After
several failures in a row the circuit opens and the engine is left alone for a while; then one
request tries it, and closes the circuit or opens it for twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FAILURES_TO_OPEN = 3  # one bad answer evicts nobody
_FIRST_PAUSE = 1.0  # seconds
_LONGEST_PAUSE = 30.0


@dataclass(slots=True)
class Circuit:
    """The state of one engine. `clock` gives seconds."""

    clock: Callable[[], float]
    _failures: int = 0
    _pause: float = _FIRST_PAUSE
    _open_until: float = 0.0
    _trying: bool = False

    @property
    def state(self) -> str:
        """closed, open, or half_open: one request may try."""
        if self._failures < _FAILURES_TO_OPEN:
            return "closed"
        return "open" if self.clock() < self._open_until or self._trying else "half_open"

    @property
    def allows(self) -> bool:
        """Whether a request may be sent now."""
        return self.state != "open"

    def begin(self) -> None:
        """A request is sent."""
        if self.state == "half_open":
            self._trying = True

    def succeeded(self) -> None:
        """A request was answered, or the engine was there to refuse it."""
        self._failures, self._pause, self._trying = 0, _FIRST_PAUSE, False

    def failed(self) -> None:
        """A request failed, and the engine was to blame."""
        self._failures += 1
        if self._failures >= _FAILURES_TO_OPEN:
            self._open_until = self.clock() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if self._trying else self._pause
        self._trying = False

    def gave_up(self) -> None:
        """A request's time was over: it may have been too short, or the engine too slow."""
        self._trying = False

    def reset(self) -> None:
        """The engine is a new process."""
        self.succeeded()


@dataclass(slots=True)
class RetryBudget:
    """Retries as a share of requests, so that an outage does not multiply the load.

    Each request earns `ratio` of a retry, and a reserve of `reserve` is there from the start.
    """

    ratio: float = 0.2
    reserve: float = 20.0
    _left: float = field(init=False)

    def __post_init__(self) -> None:
        """Starts with the whole reserve."""
        self._left = self.reserve

    def earn(self) -> None:
        """A request came."""
        self._left = min(self._left + self.ratio, self.reserve)

    def spend(self) -> bool:
        """Takes one retry; False if none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
