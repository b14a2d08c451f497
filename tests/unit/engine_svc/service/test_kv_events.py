"""What a watcher of the prefix cache hears: all of it, in order, from wherever it was."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from octavo.engine.v1 import telemetry_pb2 as pb

from engine_svc.service import kv_events
from engine_svc.service.kv_events import KvEventLog


def name(number: int) -> bytes:
    return bytes([number]) * 32


async def heard(
    log: KvEventLog, count: int, epoch: str = "", after: int = 0
) -> list[pb.WatchKvEventsResponse]:
    messages = []
    async with aclosing(log.watch(epoch, after, asyncio.Event())) as events:
        while len(messages) < count:
            messages.append(await anext(events))
    return messages


async def test_who_comes_new_gets_a_snapshot() -> None:
    log = KvEventLog("e", 16)
    log.add(name(1) + name(2), b"")
    log.add(name(3), name(1))

    (snapshot,) = await heard(log, 1)

    assert snapshot.snapshot
    assert (snapshot.stored, snapshot.sequence) == (name(2) + name(3), 2)
    assert (snapshot.epoch, snapshot.block_size) == ("e", 16)


async def test_who_was_there_before_gets_what_it_missed() -> None:
    log = KvEventLog("e", 16)
    for number in (1, 2, 3):
        log.add(name(number), b"")

    second, third = await heard(log, 2, "e", after=1)

    assert (second.sequence, second.stored, second.snapshot) == (2, name(2), False)
    assert (third.sequence, third.stored) == (3, name(3))


async def test_another_life_of_the_engine_begins_with_a_snapshot() -> None:
    log = KvEventLog("e", 16)
    log.add(name(1), b"")

    (snapshot,) = await heard(log, 1, "an earlier one", after=1)

    assert snapshot.snapshot


async def test_what_is_no_longer_kept_is_made_up_for_by_a_snapshot(monkeypatch) -> None:
    monkeypatch.setattr(kv_events, "_MAX_KEPT_BYTES", 64)
    log = KvEventLog("e", 16)
    for number in range(10):
        log.add(name(number), b"")

    (snapshot,) = await heard(log, 1, "e", after=2)

    assert snapshot.snapshot
    assert len(snapshot.stored) == 10 * 32


async def test_changes_are_told_as_they_come() -> None:
    log = KvEventLog("e", 16)
    async with aclosing(log.watch("", 0, asyncio.Event())) as events:
        await anext(events)
        log.add(name(1), b"")

        change = await anext(events)

    assert (change.stored, change.sequence) == (name(1), 1)


async def test_the_stream_ends_with_the_engine() -> None:
    closing = asyncio.Event()
    log = KvEventLog("e", 16)
    events = log.watch("", 0, closing)
    await anext(events)

    closing.set()

    assert [event async for event in events] == []
