"""What a parent and a worker say to each other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from router_svc.processes.control import Control, ControlClosedError


class Side:
    """One of the two, which answers with its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def open(self, end: socket.socket) -> None:
        """Begins to listen."""
        self.control = await Control.over(end, on_tell=self.heard.put_nowait, answer=self.answer)
        self.running = asyncio.create_task(self.control.run())

    async def answer(self) -> str:
        """What the other side is answered."""
        await self.may_answer.wait()
        return f"I am the {self.name}"


@pytest_asyncio.fixture
async def sides() -> AsyncIterator[tuple[Side, Side]]:
    parent, worker = Side("parent"), Side("worker")
    for side, end in zip((parent, worker), socket.socketpair(), strict=True):
        await side.open(end)
    yield parent, worker
    for side in (parent, worker):
        side.running.cancel()
    await asyncio.gather(parent.running, worker.running, return_exceptions=True)


async def test_notices_arrive_in_their_order(sides) -> None:
    parent, worker = sides

    parent.control.tell({"first": 1})
    parent.control.tell("second")

    assert [await worker.heard.get(), await worker.heard.get()] == [{"first": 1}, "second"]


async def test_both_may_ask_while_they_are_asked(sides) -> None:
    parent, worker = sides

    answers = await asyncio.gather(parent.control.ask(), worker.control.ask(), parent.control.ask())

    assert answers == ["I am the worker", "I am the parent", "I am the worker"]


async def test_who_waits_for_an_answer_hears_that_the_other_has_ended(sides) -> None:
    parent, worker = sides
    worker.may_answer.clear()
    question = asyncio.create_task(parent.control.ask())
    await asyncio.sleep(0)

    worker.running.cancel()

    with pytest.raises(ControlClosedError):
        await question
    await parent.running
    with pytest.raises(ControlClosedError):
        await parent.control.ask()
