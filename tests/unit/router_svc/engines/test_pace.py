"""Tokens travel one by one while there is time to write each, and share a message when not."""

from __future__ import annotations

import asyncio
import time

from router_svc.engines.pace import Pace
from router_svc.engines.request_stream import RequestStream
from router_svc.generation_types import EngineDelta, EngineEvent, EngineFinish, FinishReason

WRITING_SECONDS = 0.3


def _stream() -> RequestStream:
    return RequestStream((1, 2), 1, lambda _choice: None)


async def _next(events) -> EngineEvent:
    return await asyncio.wait_for(anext(events), timeout=30)


class _BusyStream(RequestStream):
    """One that takes its time to be written to."""

    def __init__(self) -> None:
        super().__init__((), 1, lambda _choice: None)

    def wake(self) -> None:
        asyncio.get_running_loop().call_soon(time.sleep, WRITING_SECONDS)


async def _settle() -> None:
    """Lets everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_token_that_comes_when_nothing_is_to_be_written_goes_out_at_once() -> None:
    pace, stream = Pace(), _stream()
    reading = asyncio.ensure_future(_next(aiter(stream)))
    await _settle()

    stream.push_tokens(0, 0, [7])
    pace.wake({stream})
    await _settle()

    assert reading.done()
    assert reading.result() == EngineDelta(0, 0, [7], ())


async def test_tokens_that_come_faster_than_they_can_be_written_share_a_delta() -> None:
    pace, stream = Pace(), _stream()
    pace.wake({_BusyStream()})
    events = aiter(stream)
    reading = asyncio.ensure_future(_next(events))
    await _settle()

    for position in range(3):
        stream.push_tokens(0, position, [10 + position])
        pace.wake({stream})
        await _settle()

    assert not reading.done()
    assert await reading == EngineDelta(0, 0, [10, 11, 12], ())


async def test_an_end_is_not_held_back_and_comes_after_the_tokens_before_it() -> None:
    pace, stream = Pace(), _stream()
    pace.wake({_BusyStream()})
    events = aiter(stream)
    stream.push_tokens(0, 0, [7])
    pace.wake({stream})

    stream.push(EngineFinish(0, FinishReason.STOP, None, 1))

    assert await _next(events) == EngineDelta(0, 0, [7], ())
    assert isinstance(await _next(events), EngineFinish)


async def test_tokens_of_two_choices_do_not_mix() -> None:
    stream = _stream()
    stream.push_tokens(0, 0, [1])
    stream.push_tokens(1, 0, [2])
    stream.push_tokens(1, 1, [3])
    stream.push_tokens(0, 1, [4])
    stream.wake()
    events = aiter(stream)

    got = [await _next(events) for _ in range(3)]

    assert got == [
        EngineDelta(0, 0, [1], ()),
        EngineDelta(1, 0, [2, 3], ()),
        EngineDelta(0, 1, [4], ()),
    ]


async def test_a_gap_is_kept_for_the_pipeline_to_see() -> None:
    stream = _stream()
    stream.push_tokens(0, 0, [1])
    stream.push_tokens(0, 2, [3])
    stream.wake()
    events = aiter(stream)

    got = [await _next(events) for _ in range(2)]

    assert got == [EngineDelta(0, 0, [1], ()), EngineDelta(0, 2, [3], ())]


async def test_what_was_taken_no_longer_grows() -> None:
    stream = _stream()
    events = aiter(stream)
    stream.push_tokens(0, 0, [1])
    stream.wake()
    first = await _next(events)

    stream.push_tokens(0, 1, [2])
    stream.wake()

    assert first == EngineDelta(0, 0, [1], ())
    assert await _next(events) == EngineDelta(0, 1, [2], ())


async def test_tokens_that_have_come_wait_for_their_turn_with_a_reader_that_is_late_too() -> None:
    stream = _stream()
    events = aiter(stream)
    stream.push_tokens(0, 0, [1])
    stream.wake()
    await _next(events)  # it writes that, and comes back

    stream.push_tokens(0, 1, [2])
    reading = asyncio.ensure_future(_next(events))
    await _settle()
    stream.push_tokens(0, 2, [3])

    assert not reading.done()
    stream.wake()
    assert await reading == EngineDelta(0, 1, [2, 3], ())
