"""Clients that ping while nothing comes, in a long prefill or between calls, are not cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from router_svc.fleet.fleet import Fleet
from router_svc.served_model import ServedModel
from router_svc.server import Router, RouterConfig
from tests.support.ping_counter import ping_counter

# gRPC's servers end a connection with "too_many_pings" at the fourth ping that comes too soon after
# the one before. Its clients ping once a second at most.
PINGS = 4
OPTIONS = [
    ("grpc.keepalive_time_ms", 1_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
REQUEST = health_pb2.HealthCheckRequest()


@asynccontextmanager
async def routing(config: RouterConfig) -> AsyncIterator[str]:
    """A router without engines, and where it is reached."""
    model = ServedModel(Fleet(""), None, None, None)  # type: ignore[arg-type] # no call gets so far
    router = Router(config, [model])
    await router.start()
    yield f"127.0.0.1:{router.ports['grpc_port']}"
    await router.close()


async def test_pings_in_silence_are_welcome() -> None:
    async with (
        routing(RouterConfig("127.0.0.1", 0, 0, 1 << 20, 1.0, ping_seconds=0.8)) as target,
        ping_counter(target) as (of_waiting, at_waiting),
        ping_counter(target) as (of_idle, at_idle),
        grpc.aio.insecure_channel(at_waiting, options=OPTIONS) as waiting,
        grpc.aio.insecure_channel(at_idle, options=OPTIONS) as idle,
    ):
        call = health_pb2_grpc.HealthStub(waiting).Watch(REQUEST)
        await call.read()  # after which there is nothing to say
        await health_pb2_grpc.HealthStub(idle).Check(REQUEST)

        await asyncio.gather(of_waiting.wait(PINGS), of_idle.wait(PINGS))

        for each in (waiting, idle):
            await health_pb2_grpc.HealthStub(each).Check(REQUEST)
        assert not call.done()
        assert (of_waiting.connections, of_idle.connections) == (1, 1), "a connection was ended"
        call.cancel()


async def test_who_pings_every_second_is_cut_off_by_default() -> None:
    config = RouterConfig("127.0.0.1", 0, 0, 1 << 20, 1.0)
    async with (
        routing(config) as target,
        grpc.aio.insecure_channel(target, options=OPTIONS) as hasty,
    ):
        call = health_pb2_grpc.HealthStub(hasty).Watch(REQUEST)
        await call.read()

        code, details = await call.code(), await call.details()

    assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "Too many pings")
    assert config.ping_seconds == 5  # half of what clients are told to keep to
