"""One engine's connection: what it refuses, and that nothing a message does ends it for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from router_svc.engines.channel import EngineChannel, wait_ready
from router_svc.errors import ApiError, ErrorKind
from router_svc.generation_types import EngineDelta, EngineEvent, GenerationRequest, Sampling
from tests.support.steady_telemetry import add_steady_telemetry

SERVICE = "octavo.engine.v1.Engine"
REQUEST = GenerationRequest("r", (1, 2), Sampling(temperature=0))


class ScriptedEngine(engine_pb2_grpc.EngineServicer):
    """An engine that answers the n-th submitted request with the n-th script of outcomes."""

    def __init__(self, *scripts: list[pb.SessionEvent | pb.TokenRuns]) -> None:
        self.scripts = list(scripts)
        self.submitted: list[pb.GenerateRequest] = []

    async def GetModelInfo(self, request, context):  # noqa: N802 - gRPC's name
        return pb.GetModelInfoResponse(served_names=["m"], tokenizer_sha256="abc")

    async def Session(self, requests, context):  # noqa: N802 - gRPC's name
        async for frame in requests:
            if frame.WhichOneof("frame") != "submit":
                continue
            self.submitted.append(frame.submit)
            for event in self.scripts.pop(0):
                if isinstance(event, pb.TokenRuns):
                    event.stream_ids.extend([frame.stream_id] * len(event.num_tokens))
                    yield pb.SessionResponse(token_runs=event)
                    continue
                event.stream_id = frame.stream_id
                yield pb.SessionResponse(events=[event])


@pytest.fixture
async def serve() -> AsyncIterator:
    servers = []

    async def start(engine: ScriptedEngine, statuses: health.aio.HealthServicer | None = None):
        server = grpc.aio.server()
        engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
        add_steady_telemetry(server)
        if statuses is None:
            statuses = health.aio.HealthServicer()
            await statuses.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(statuses, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        await server.stop(0)


def _delta(*ids: int) -> pb.SessionEvent:
    return pb.SessionEvent(event=pb.GenerateResponse(delta=pb.Delta(token_ids=ids)))


def _finish() -> pb.SessionEvent:
    finish = pb.Finish(reason=pb.FINISH_REASON_STOP)
    return pb.SessionEvent(event=pb.GenerateResponse(finish=finish))


async def _read(channel: EngineChannel) -> list[EngineEvent]:
    stream = channel.submit(REQUEST)
    events = []
    async for event in stream:
        events.append(event)
        if stream.num_unfinished == 0:
            break
    return events


async def test_a_request_carries_the_tokeniser_that_its_ids_are_of(serve) -> None:
    engine = ScriptedEngine([_delta(7), _finish()])
    channel = EngineChannel(await serve(engine), "abc")
    channel.start()
    await wait_ready(channel, 30)

    events = await _read(channel)

    assert events[0] == EngineDelta(0, 0, [7], ())
    assert engine.submitted[0].expect.tokenizer_sha256 == "abc"
    await channel.close()


async def test_token_runs_are_read_as_the_deltas_that_they_stand_for(serve) -> None:
    runs = pb.TokenRuns(
        choices=[0, 1, 0], first_positions=[0, 0, 2], num_tokens=[2, 1, 1], token_ids=[7, 8, 17, 9]
    )
    channel = EngineChannel(await serve(ScriptedEngine([runs, _finish()])), "abc")
    channel.start()
    await wait_ready(channel, 30)

    *deltas, _finished = await _read(channel)

    assert deltas == [
        EngineDelta(0, 0, [7, 8], ()),
        EngineDelta(1, 0, [17], ()),
        EngineDelta(0, 2, [9], ()),
    ]
    await channel.close()


async def test_token_runs_that_do_not_add_up_fail_the_session(serve) -> None:
    runs = pb.TokenRuns(choices=[0], first_positions=[0], num_tokens=[1], token_ids=[7, 8])
    channel = EngineChannel(await serve(ScriptedEngine([runs, _finish()])), "abc")
    channel.start()
    await wait_ready(channel, 30)

    with pytest.raises(ApiError) as caught:
        await _read(channel)

    assert caught.value.kind is ErrorKind.UNAVAILABLE
    await channel.close()


async def test_an_engine_with_another_tokeniser_is_never_ready_which_is_said_once(
    serve, caplog
) -> None:
    channel = EngineChannel(await serve(ScriptedEngine()), "another")
    channel.start()

    with caplog.at_level(logging.ERROR):
        while not caplog.messages:  # noqa: ASYNC110 -- the log has no event to wait for
            await asyncio.sleep(0.01)
        assert await wait_ready(channel, 1) is None

    (complaint,) = caplog.messages  # of all that were tried within the second
    assert "has a tokeniser with SHA-256 abc, the router's has another" in complaint
    await channel.close()


async def test_an_engine_that_is_about_to_go_is_not_ready_though_it_lets_itself_be_connected_to(
    serve,
) -> None:
    statuses = health.aio.HealthServicer()
    await statuses.set(SERVICE, health_pb2.HealthCheckResponse.NOT_SERVING)
    told = []
    channel = EngineChannel(await serve(ScriptedEngine(), statuses), "abc", on_ready=told.append)
    channel.start()

    while channel.info is None or not channel.load.received_at:
        await asyncio.sleep(0.01)
        assert not channel.ready
    assert not told
    await statuses.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)

    assert await wait_ready(channel, 30) is not None
    assert len(told) == 1
    await channel.close()


async def test_a_message_that_makes_no_sense_fails_its_session_and_not_the_next(serve) -> None:
    nonsense = pb.SessionEvent(event=pb.GenerateResponse(finish=pb.Finish(reason=99)))
    channel = EngineChannel(await serve(ScriptedEngine([nonsense], [_delta(7), _finish()])), "abc")
    channel.start()
    await wait_ready(channel, 30)

    with pytest.raises(ApiError) as caught:
        await _read(channel)
    await wait_ready(channel, 30)

    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert len(await _read(channel)) == 2
    await channel.close()


async def test_a_request_without_an_engine_fails_at_once() -> None:
    channel = EngineChannel("127.0.0.1:1", "abc")

    with pytest.raises(ApiError, match="no engine is ready"):
        await _read(channel)
