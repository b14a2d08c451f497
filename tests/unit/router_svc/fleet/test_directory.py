"""Engines come to the fleet as sources name them, whatever befalls a source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from router_svc.fleet.directory import Directory


class NotedFleet:
    """Notes who came and who went."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.has_two = asyncio.Event()

    def add(self, target: str) -> None:
        self.there.add(target)
        if len(self.there) == 2:
            self.has_two.set()

    def remove(self, target: str) -> None:
        self.there.remove(target)


class BreakingSource:
    """Breaks once, after it has told of one engine."""

    def __init__(self) -> None:
        self.broke = False

    async def targets(self) -> AsyncIterator[frozenset[str]]:
        yield frozenset({"a:1"})
        if not self.broke:
            self.broke = True
            raise RuntimeError("no such thing was foreseen")
        yield frozenset({"a:1", "b:2"})


async def test_a_source_that_breaks_is_followed_again() -> None:
    fleet = NotedFleet()
    directory = Directory([BreakingSource()], {"sha": fleet})

    directory.start()

    async with asyncio.timeout(30):
        await fleet.has_two.wait()
    assert fleet.there == {"a:1", "b:2"}
    await directory.close()
