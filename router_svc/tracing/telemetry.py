"""What a router sends by OTLP: started from its flags, closed with it."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from octavo.tracing import (
    CLOSE_SECONDS,
    Tracing,
    close_within,
    exporter_of,
    resource_of,
    start_tracing,
    wanted,
)

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics import MeterProvider

_SERVICE = "octavo-router"


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Where spans and metrics go to; each is None where it is off."""

    tracing: Tracing | None = None
    meters: MeterProvider | None = None

    @classmethod
    def start(cls, endpoint: str | None) -> Telemetry:
        """As the flag and the OTEL_ variables say. Raises ValueError, with a message for people."""
        instance = f"{socket.gethostname()}-{os.getpid()}"
        tracing = start_tracing(_SERVICE, endpoint=endpoint, instance_id=instance)
        return cls(tracing, _start_meters(endpoint, instance))

    @property
    def meter(self) -> Meter | None:
        """What makes instruments."""
        if self.meters is None:
            return None
        return self.meters.get_meter("octavo", metadata.version("octavo"))

    async def close(self) -> None:
        """Sends what is left, for `CLOSE_SECONDS` at most."""
        closing = []
        if self.meters is not None:
            closing.append(
                asyncio.to_thread(close_within, CLOSE_SECONDS, self.meters.shutdown, _do_nothing)
            )
        if self.tracing is not None:
            closing.append(asyncio.to_thread(self.tracing.close))
        await asyncio.gather(*closing)


def _do_nothing() -> None:
    """What is left of the metrics ends with the process."""


def _start_meters(endpoint: str | None, instance: str) -> MeterProvider | None:
    if not wanted("metrics", endpoint, os.environ):
        return None
    # Only here: it loads OpenTelemetry.
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = exporter_of("metrics", endpoint, os.environ)
    return MeterProvider(
        [PeriodicExportingMetricReader(exporter)],
        resource=resource_of(_SERVICE, instance),
        shutdown_on_exit=False,
    )
