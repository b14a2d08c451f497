"""A real engine behind a front that dies at a chosen token, as a killed process would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.engine.v1 import engine_pb2_grpc

from tests.support.steady_telemetry import add_steady_telemetry


class CuttingEngine(engine_pb2_grpc.EngineServicer):
    """Passes everything on, until `cut_after` tokens have gone through a session: that breaks."""

    def __init__(self, stub: engine_pb2_grpc.EngineStub) -> None:
        self._stub = stub
        self.cut_after: int | None = None
        self.num_cuts = 0

    async def GetModelInfo(self, request, context):  # noqa: N802 - gRPC's name
        return await self._stub.GetModelInfo(request)

    async def Session(self, requests, context):  # noqa: N802 - gRPC's name
        call = self._stub.Session(requests)
        passed = 0
        try:
            async for message in call:
                yield message
                passed += len(message.token_runs.token_ids)
                passed += sum(len(event.event.delta.token_ids) for event in message.events)
                if self.cut_after is not None and passed >= self.cut_after:
                    self.cut_after = None
                    self.num_cuts += 1
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        finally:
            call.cancel()


@asynccontextmanager
async def cutting_engine(target: str) -> AsyncIterator[tuple[CuttingEngine, str]]:
    """The front of the engine at `target`, and where it is reached."""
    server = grpc.aio.server()
    async with grpc.aio.insecure_channel(target) as channel:
        engine = CuttingEngine(engine_pb2_grpc.EngineStub(channel))
        engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
        add_steady_telemetry(server)
        servicer = health.aio.HealthServicer()
        await servicer.set("octavo.engine.v1.Engine", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield engine, f"127.0.0.1:{port}"
        finally:
            await server.stop(0)
