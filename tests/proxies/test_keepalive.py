"""Clients that ping while nothing comes, in a long prefill or between calls, are not cut off."""

from __future__ import annotations

import asyncio

import grpc
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support.held_service import HeldService
from tests.support.ping_counter import ping_counter
from tests.support.streams import chat_request

# gRPC's servers end a connection with "too_many_pings" at the fourth ping that comes too soon after
# the one before. Ten seconds is what clients are told to keep to; a router takes half of that.
OPTIONS = [
    ("grpc.keepalive_time_ms", 5_100),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
PINGS = 4


async def test_pings_in_silence_are_welcome(service: HeldService) -> None:
    target = service.routers[0].grpc_target
    async with (
        ping_counter(target) as (of_waiting, at_waiting),
        ping_counter(target) as (of_idle, at_idle),
        grpc.aio.insecure_channel(at_waiting, options=OPTIONS) as waiting,
        grpc.aio.insecure_channel(at_idle, options=OPTIONS) as idle,
    ):
        service.gate.hold()
        call = inference_pb2_grpc.InferenceStub(waiting).StreamChatCompletion(chat_request(3))
        await inference_pb2_grpc.InferenceStub(idle).ListModels(pb.ListModelsRequest())
        await asyncio.gather(of_waiting.wait(PINGS), of_idle.wait(PINGS))
        service.gate.open()

        chunks = [chunk async for chunk in call]
        await inference_pb2_grpc.InferenceStub(idle).ListModels(pb.ListModelsRequest())

        assert await call.code() is grpc.StatusCode.OK
        assert chunks[-1].choices[0].finish_reason == pb.FINISH_REASON_LENGTH
        assert (of_waiting.connections, of_idle.connections) == (1, 1), "a connection was ended"
