"""What probes and routers are told: one state, from the engine itself whenever it is asked for.

idle, for however long          READY       SERVING
a step under way                READY       SERVING       busy is not ill
no progress for too long        STALLED     NOT_SERVING
blocks leaked, loop ended       STALLED     NOT_SERVING
drain begun                     DRAINING    NOT_SERVING   at once
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_health.v1 import health_pb2
from octavo.engine.v1 import telemetry_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpc_health.v1.health import aio as health_aio

    from engine_svc.service.served_engine import ServedEngine


class EngineHealth:
    """Keeps grpc.health.v1 in step with the engine's state."""

    def __init__(
        self, engine: ServedEngine, servicer: health_aio.HealthServicer, services: Iterable[str]
    ) -> None:
        """`services` are full names; the overall status, "", is set with them."""
        self._engine = engine
        self._servicer = servicer
        self._services = ("", *services)
        self._last: telemetry_pb2.EngineState.ValueType | None = None

    @property
    def state(self) -> telemetry_pb2.EngineState.ValueType:
        """The engine's state as of now."""
        if self._engine.is_broken or self._engine.is_stalled:
            return telemetry_pb2.ENGINE_STATE_STALLED
        if self._engine.is_draining:
            return telemetry_pb2.ENGINE_STATE_DRAINING
        return telemetry_pb2.ENGINE_STATE_READY

    async def refresh(self) -> None:
        """Tells grpc.health.v1, and with it everybody who watches, if the state has changed."""
        state = self.state
        if state == self._last:
            return
        self._last = state
        serving = state == telemetry_pb2.ENGINE_STATE_READY
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for service in self._services:
            await self._servicer.set(service, status)
