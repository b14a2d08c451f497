"""Which live requests are past their deadline, without looking at all of them before each step."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

_SLACK = 64  # entries of requests long gone that are kept without a sweep


class Deadlines:
    """A heap of (deadline, key). A request that ends early stays in it until a sweep."""

    def __init__(self) -> None:
        """Makes an empty heap."""
        self._heap: list[tuple[float, int]] = []
        self._sweep_at = _SLACK

    def add(self, deadline: float, key: int, live: Container[int]) -> None:
        """Watches a request. `live` says which keys are still of interest."""
        heappush(self._heap, (deadline, key))
        if len(self._heap) > self._sweep_at:
            self._heap = [entry for entry in self._heap if entry[1] in live]
            heapify(self._heap)
            self._sweep_at = 2 * len(self._heap) + _SLACK

    def pop_expired(self, now: float) -> list[int]:
        """Takes out the keys with deadline <= now, some of which may be long gone."""
        keys = []
        while self._heap and self._heap[0][0] <= now:
            keys.append(heappop(self._heap)[1])
        return keys
