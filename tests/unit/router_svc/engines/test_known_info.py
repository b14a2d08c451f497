"""What a router knows of an engine, from answers that may take their time."""

from __future__ import annotations

import asyncio

import grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from router_svc.engines.known_info import KnownInfo


class SlowAtFirst(engine_pb2_grpc.EngineServicer):
    """Holds its first answer back; each says by its name how many there were."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._count = 0

    async def GetModelInfo(self, request, context):  # noqa: N802 -- gRPC's name
        self._count += 1
        answer = pb.GetModelInfoResponse(served_names=[f"answer {self._count}"])
        if self._count == 1:
            self.asked.set()
            await self.may_answer.wait()
        return answer


async def test_an_answer_that_is_late_does_not_hide_a_newer_one(tmp_path) -> None:
    server, engine = grpc.aio.server(), SlowAtFirst()
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    target = f"unix:{tmp_path}/engine.sock"
    server.add_insecure_port(target)
    await server.start()
    known = KnownInfo(target, tokenizer_sha256="")
    async with grpc.aio.insecure_channel(target) as channel:
        first = asyncio.create_task(known.ask(channel))
        await engine.asked.wait()
        second = asyncio.create_task(known.ask(channel))
        await asyncio.wait({second}, timeout=0.3)  # time to overtake the first

        engine.may_answer.set()
        await asyncio.gather(first, second)

    await server.stop(None)
    assert known.current is not None
    assert known.current.served_names == ("answer 2",)
