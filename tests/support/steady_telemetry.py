"""An engine's telemetry with nothing to tell but that the engine is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from octavo.engine.v1 import telemetry_pb2 as pb
from octavo.engine.v1 import telemetry_pb2_grpc


class SteadyTelemetry(telemetry_pb2_grpc.TelemetryServicer):
    """Tells `load` at once and then every half second."""

    def __init__(self) -> None:
        self.load = pb.WatchLoadsResponse(state=pb.ENGINE_STATE_READY)

    async def WatchLoads(  # noqa: N802 - gRPC's name
        self, request: pb.WatchLoadsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.WatchLoadsResponse]:
        while True:
            yield self.load
            await asyncio.sleep(0.5)


def add_steady_telemetry(server: grpc.aio.Server) -> SteadyTelemetry:
    """Adds it to a server that is not started yet."""
    telemetry = SteadyTelemetry()
    telemetry_pb2_grpc.add_TelemetryServicer_to_server(telemetry, server)
    return telemetry
