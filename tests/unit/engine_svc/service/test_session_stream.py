"""Requests of a session whose constraint is still being compiled when their peer loses interest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.service.errors import invalid
from engine_svc.service.session import Session

CONSTRAINED = pb.GenerateRequest(constraint=pb.Constraint(regex="a"))


class SlowAdmission:
    """Compiles until it is let go; a task that was cancelled in that moment does not notice."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.done = asyncio.Event()
        self._refusal = refusal

    async def prepare(self, submit: pb.GenerateRequest) -> pb.GenerateRequest:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # as asyncio.wait_for does when its future is done as well
        self.done.set()
        if self._refusal is not None:
            raise self._refusal
        return submit


class IdleEngine:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.submitted: list[object] = []

    def submit(self, submission: object, *_: object) -> object:
        self.submitted.append(submission)
        return submission


async def frames(admission: SlowAdmission) -> AsyncIterator[pb.SessionRequest]:
    yield pb.SessionRequest(stream_id=1, submit=CONSTRAINED)
    await admission.begun.wait()
    yield pb.SessionRequest(stream_id=1, cancel=pb.CancelFrame())


async def messages_of(admission: SlowAdmission, engine: IdleEngine) -> list[pb.SessionResponse]:
    session = Session(engine, admission, 1000)  # type: ignore[arg-type]
    await session.read(frames(admission))
    await admission.done.wait()
    await asyncio.sleep(0.01)
    engine.closing.set()
    return [message async for message in session.messages()]


async def test_a_request_that_was_cancelled_while_it_compiled_never_runs() -> None:
    engine = IdleEngine()

    assert await messages_of(SlowAdmission(), engine) == []

    assert engine.submitted == []


async def test_its_refusal_is_not_told_to_a_peer_that_asked_for_silence() -> None:
    refusal = invalid("constraint.regex", "is not one")

    assert await messages_of(SlowAdmission(refusal), IdleEngine()) == []
