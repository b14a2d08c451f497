"""Keeps an engine's PrefixIndex up to date over its connection."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc
from octavo.engine.v1 import telemetry_pb2 as pb
from octavo.engine.v1 import telemetry_pb2_grpc

if TYPE_CHECKING:
    from router_svc.fleet.prefix_index import PrefixIndex

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


async def follow_kv_events(
    channel: grpc.aio.Channel, index: PrefixIndex, wanted: asyncio.Event
) -> None:
    """Applies the engine's messages for as long as the connection lives, once they are `wanted`.

    A broken stream goes on where it was; one that has a gap begins again.
    """
    await wanted.wait()
    stub = telemetry_pb2_grpc.TelemetryStub(channel)
    while True:
        request = pb.WatchKvEventsRequest(epoch=index.epoch, after_sequence=index.sequence)
        try:
            async for message in stub.WatchKvEvents(request):
                if not index.apply(
                    message.epoch,
                    message.sequence,
                    snapshot=message.snapshot,
                    stored=message.stored,
                    removed=message.removed,
                ):
                    break
        except grpc.aio.AioRpcError as error:
            log.debug("no news of a prefix cache: %s", error.details())
        await asyncio.sleep(_RETRY_SECONDS)
