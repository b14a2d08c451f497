"""Engines that come and go, each of them real as far as the router can tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc, telemetry_pb2

from router_svc.fleet.fleet import Fleet
from router_svc.generation_types import (
    EngineDelta,
    EngineFinish,
    GenerationRequest,
    Sampling,
)
from tests.support.steady_telemetry import SteadyTelemetry, add_steady_telemetry

REQUEST = GenerationRequest("r", (1, 2), Sampling(temperature=0))


class OneTokenEngine(engine_pb2_grpc.EngineServicer):
    """Gives every request one token, and goes on only when it is told to."""

    telemetry: SteadyTelemetry

    def __init__(self, weights_version: str = "") -> None:
        self.go_on = asyncio.Event()
        self.weights_version = weights_version
        self.statuses = health.aio.HealthServicer()

    def drain(self) -> None:
        """Says that it takes no more."""
        self.telemetry.load.state = telemetry_pb2.ENGINE_STATE_DRAINING

    def hang(self) -> None:
        """Says that its steps do not end."""
        self.telemetry.load.state = telemetry_pb2.ENGINE_STATE_STALLED

    async def GetModelInfo(self, request, context):  # noqa: N802 - gRPC's name
        return pb.GetModelInfoResponse(
            served_names=["m"], tokenizer_sha256="abc", weights_version=self.weights_version
        )

    async def Session(self, requests, context):  # noqa: N802 - gRPC's name
        async for frame in requests:
            if frame.WhichOneof("frame") == "submit":
                delta = pb.GenerateResponse(delta=pb.Delta(token_ids=[7]))
                yield _message(frame.stream_id, delta)
                await self.go_on.wait()
                finish = pb.Finish(reason=pb.FINISH_REASON_STOP)
                yield _message(frame.stream_id, pb.GenerateResponse(finish=finish))


def _message(stream_id: int, event: pb.GenerateResponse) -> pb.SessionResponse:
    return pb.SessionResponse(events=[pb.SessionEvent(stream_id=stream_id, event=event)])


@asynccontextmanager
async def served(engine: OneTokenEngine) -> AsyncIterator[tuple[grpc.aio.Server, str]]:
    server = grpc.aio.server()
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    engine.telemetry = add_steady_telemetry(server)
    serving = health_pb2.HealthCheckResponse.SERVING
    await engine.statuses.set("octavo.engine.v1.Engine", serving)
    health_pb2_grpc.add_HealthServicer_to_server(engine.statuses, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def fleet_of(
    *engines: OneTokenEngine, move_on_drain: bool = True
) -> AsyncIterator[tuple[Fleet, list[str]]]:
    async with AsyncExitStack() as stack:
        targets = [(await stack.enter_async_context(served(engine)))[1] for engine in engines]
        fleet = Fleet("abc", policy="round_robin", move_on_drain=move_on_drain)
        stack.push_async_callback(fleet.close)
        for target in targets:
            fleet.add(target)
        await until(lambda: all(member.may_serve for member in fleet.members))
        yield fleet, targets


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what must come."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a fleet has no event for it
            await asyncio.sleep(0.01)


async def test_an_engine_that_is_no_longer_found_finishes_what_it_has_and_is_forgotten() -> None:
    engine = OneTokenEngine()
    async with fleet_of(engine) as (fleet, [target]):
        events = aiter(fleet.submit(REQUEST))
        assert isinstance(await anext(events), EngineDelta)

        fleet.remove(target)

        assert not fleet.ready
        assert len(fleet.members) == 1
        engine.go_on.set()
        assert len([event async for event in events]) == 1
        await until(lambda: not fleet.members)


async def test_an_engine_that_is_found_again_meanwhile_stays() -> None:
    engine = OneTokenEngine()
    async with fleet_of(engine) as (fleet, [target]):
        events = aiter(fleet.submit(REQUEST))
        await anext(events)

        fleet.remove(target)
        fleet.add(target)
        engine.go_on.set()
        _ = [event async for event in events]

        assert fleet.ready
        assert [member.name for member in fleet.members] == [target]


class HeldStatuses(health.aio.HealthServicer):
    """Says nothing of an engine's health until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def Watch(self, request, context):  # noqa: N802 - gRPC's name
        await self.go_on.wait()
        await super().Watch(request, context)


async def test_of_engines_that_come_together_with_other_weights_only_one_is_used(caplog) -> None:
    engines = [OneTokenEngine("v1"), OneTokenEngine("v2")]
    held = [HeldStatuses(), HeldStatuses()]
    for engine, statuses in zip(engines, held, strict=True):
        engine.statuses = statuses
    async with AsyncExitStack() as stack:
        fleet = Fleet("abc")
        stack.push_async_callback(fleet.close)
        for engine in engines:
            fleet.add((await stack.enter_async_context(served(engine)))[1])
        channels = [member.channel for member in fleet.members]
        await until(lambda: "its weights have the version" in caplog.text)

        for statuses in held:
            statuses.go_on.set()

        await until(lambda: any(channel.ready for channel in channels))
        assert [channel.ready for channel in channels].count(True) == 1


async def test_an_engine_lost_while_it_is_asked_for_metrics_has_none() -> None:
    engines = [OneTokenEngine(), OneTokenEngine()]
    async with fleet_of(*engines) as (fleet, targets):
        asked = asyncio.create_task(fleet.metrics())
        await asyncio.sleep(0)
        fleet.remove(targets[0])  # which closes its channel under the question

        assert len(await asked) == 2


@pytest.mark.parametrize(("move", "engine_that_ends_it"), [(True, 1), (False, 0)])
async def test_an_answer_leaves_an_engine_that_drains_or_is_left_to_finish(
    move: bool, engine_that_ends_it: int
) -> None:
    engines = OneTokenEngine(), OneTokenEngine()
    async with fleet_of(*engines, move_on_drain=move) as (fleet, _):
        events = aiter(fleet.submit(REQUEST))
        await anext(events)
        engines[0].drain()
        await asyncio.sleep(0.7)  # it tells its load every half second

        engines[engine_that_ends_it].go_on.set()

        async with asyncio.timeout(30):
            rest = [event async for event in events]
    assert isinstance(rest[-1], EngineFinish)
    assert fleet.num_failovers == int(move)


async def test_an_answer_leaves_an_engine_whose_steps_hang() -> None:
    engines = OneTokenEngine(), OneTokenEngine()
    async with fleet_of(*engines, move_on_drain=False) as (fleet, _):
        events = aiter(fleet.submit(REQUEST))
        await anext(events)

        engines[0].hang()
        engines[1].go_on.set()

        async with asyncio.timeout(30):
            rest = [event async for event in events]
    assert isinstance(rest[-1], EngineFinish)
    assert fleet.num_failovers == 1
