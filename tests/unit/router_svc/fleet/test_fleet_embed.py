"""Where inputs to embed go when an engine is full, and what is left of their time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from router_svc.encoder_types import EncoderInput, EncoderRequest, EncoderTask
from router_svc.errors import ApiError, ErrorKind
from router_svc.fleet.fleet import Fleet
from tests.support.scripted_encoder_engine import ScriptedEncoder, serve_encoder

FULL = rpc_status.to_status(
    Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="the queue is full")
)
REQUEST = EncoderRequest(task=EncoderTask.EMBED, request_id="r")


@pytest.fixture
async def two() -> AsyncIterator[tuple[Fleet, ScriptedEncoder, ScriptedEncoder]]:
    """A fleet of two engines."""
    engines = [ScriptedEncoder("abc"), ScriptedEncoder("abc")]
    fleet, servers = Fleet("abc"), []
    for engine in engines:
        server, target = await serve_encoder(engine)
        servers.append(server)
        fleet.add(target)
    while not all(member.may_serve for member in fleet.members):
        await fleet.wait_ready(0.05)
    yield fleet, *engines
    await fleet.close()
    for server in servers:
        await server.stop(0)


async def test_inputs_go_to_another_engine_when_one_is_full(
    two: tuple[Fleet, ScriptedEncoder, ScriptedEncoder],
) -> None:
    fleet, first, second = two
    first.refusal = FULL

    answers = [await fleet.embed(REQUEST, [EncoderInput([5])]) for _ in range(2)]

    assert [len(vectors) for vectors in answers] == [1, 1]
    assert len(second.calls) == 2


async def test_when_all_are_full_the_refusal_is_the_engines_own(
    two: tuple[Fleet, ScriptedEncoder, ScriptedEncoder],
) -> None:
    fleet, first, second = two
    first.refusal = second.refusal = FULL

    with pytest.raises(ApiError) as caught:
        await fleet.embed(REQUEST, [EncoderInput([5])])

    assert caught.value.kind is ErrorKind.RATE_LIMITED
    assert (len(first.calls), len(second.calls)) == (1, 1)
