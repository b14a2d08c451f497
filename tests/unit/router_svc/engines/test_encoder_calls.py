"""Calls that embed: what the engine is sent, and every way in which one ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from octavo.engine.v1 import engine_pb2 as pb

from router_svc.engines.channel import EngineChannel, wait_ready
from router_svc.engines.encoder_types import EncoderInput, EncoderRequest, EncoderTask
from router_svc.errors import ApiError, ErrorKind
from tests.support.scripted_encoder_engine import ScriptedEncoder, serve_encoder

REQUEST = EncoderRequest(EncoderTask.EMBED, "r", priority=3, tenant="t", timeout=30.0)
INPUTS = [EncoderInput([2, 5, 6, 3]), EncoderInput([2, 6, 6, 3])]


@pytest.fixture
async def engine() -> ScriptedEncoder:
    return ScriptedEncoder("abc")


@pytest.fixture
async def server(engine: ScriptedEncoder) -> AsyncIterator[tuple[grpc.aio.Server, str]]:
    running = await serve_encoder(engine)
    yield running
    await running[0].stop(0)


@pytest.fixture
async def channel(server: tuple[grpc.aio.Server, str]) -> AsyncIterator[EngineChannel]:
    channel = EngineChannel(server[1], "abc")
    channel.start()
    await wait_ready(channel, 30)
    yield channel
    await channel.close()


async def test_vectors_come_in_the_order_of_their_inputs(
    channel: EngineChannel, engine: ScriptedEncoder
) -> None:
    vectors = await channel.embed(REQUEST, INPUTS)

    assert [list(vector[:3]) for vector in vectors] == [[1, 1, 0], [0, 2, 0]]
    (sent,) = engine.calls
    assert (sent.request_id, sent.priority, sent.tenant) == ("r", 3, "t")
    assert sent.task == pb.EMBED_TASK_EMBEDDING
    assert sent.expect.tokenizer_sha256 == "abc"


async def test_what_the_model_does_is_known(channel: EngineChannel) -> None:
    assert channel.info is not None
    assert (channel.info.generates, channel.info.embedding_size) == (False, 12)


async def test_a_refusal_keeps_its_kind_and_its_field(
    channel: EngineChannel, engine: ScriptedEncoder
) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="inputs[1]", description="long")
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    engine.refusal = rpc_status.to_status(
        status_pb2.Status(code=3, message="too long", details=[detail])
    )

    with pytest.raises(ApiError, match="too long") as caught:
        await channel.embed(REQUEST, INPUTS)

    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    assert caught.value.param == "inputs[1]"
    assert channel.num_in_flight == 0


async def test_a_client_that_goes_away_cancels_the_engines_work(
    channel: EngineChannel, engine: ScriptedEncoder
) -> None:
    engine.hang = True
    call = asyncio.create_task(channel.embed(REQUEST, INPUTS))
    await engine.started.wait()
    assert channel.num_in_flight == 1

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(engine.cancelled.wait(), 30)
    assert channel.num_in_flight == 0


async def test_a_shutdown_ends_calls_with_its_error(
    channel: EngineChannel, engine: ScriptedEncoder
) -> None:
    engine.hang = True
    call = asyncio.create_task(channel.embed(REQUEST, INPUTS))
    await engine.started.wait()

    channel.fail_all(ApiError(ErrorKind.UNAVAILABLE, "the server is shutting down"))

    with pytest.raises(ApiError, match="shutting down"):
        await call
    await asyncio.wait_for(engine.cancelled.wait(), 30)


async def test_a_lost_engine_ends_calls_as_unavailable(
    channel: EngineChannel, engine: ScriptedEncoder, server: tuple[grpc.aio.Server, str]
) -> None:
    engine.hang = True
    call = asyncio.create_task(channel.embed(REQUEST, INPUTS))
    await engine.started.wait()

    await server[0].stop(0)

    with pytest.raises(ApiError) as caught:
        await call
    assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_without_a_connection_calls_are_refused_at_once() -> None:
    with pytest.raises(ApiError, match="no engine is ready"):
        await EngineChannel("127.0.0.1:1", "abc").embed(REQUEST, INPUTS)


async def test_a_closed_connection_ends_calls_as_unavailable(
    channel: EngineChannel, engine: ScriptedEncoder
) -> None:
    engine.hang = True
    call = asyncio.create_task(channel.embed(REQUEST, INPUTS))
    await engine.started.wait()

    await channel.close()

    with pytest.raises(ApiError, match="the engine was lost"):
        await call


async def test_a_deadline_is_the_engines_too(
    channel: EngineChannel, engine: ScriptedEncoder
) -> None:
    engine.hang = True

    with pytest.raises(ApiError) as caught:
        await channel.embed(EncoderRequest(EncoderTask.EMBED, "r", timeout=0.05), INPUTS)

    assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED
