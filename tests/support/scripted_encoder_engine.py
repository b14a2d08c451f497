"""An engine whose encoder counts words: embeddings and scores that a reader can work out by hand.

embedding     how often each of the words of `word_pieces` occurs
score         how many tokens of the second segment also stand in the first, special ones aside
"""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from tests.support.steady_telemetry import add_steady_telemetry
from tests.support.word_pieces import SPECIAL, WORDS


class ScriptedEncoder(engine_pb2_grpc.EngineServicer):
    """Answers Embed; `calls` has every request, `hang` keeps it from answering."""

    def __init__(self, tokenizer_sha256: str, **info: object) -> None:
        self.info = pb.GetModelInfoResponse(
            served_names=["encoder"],
            tokenizer_sha256=tokenizer_sha256,
            vocab_size=len(SPECIAL) + len(WORDS),
            **({"max_model_len": 12, "embedding_size": len(WORDS)} | info),  # type: ignore[arg-type]
        )
        self.calls: list[pb.EmbedRequest] = []
        self.hang = False
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.refusal: grpc.Status | None = None

    async def GetModelInfo(self, request, context):  # noqa: N802 - gRPC's name
        return self.info

    async def Session(self, requests, context):  # noqa: N802 - gRPC's name
        async for _ in requests:
            yield pb.SessionResponse()

    async def Embed(self, request, context):  # noqa: N802 - gRPC's name
        self.calls.append(request)
        self.started.set()
        if self.hang:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        if self.refusal is not None:
            await context.abort_with_status(self.refusal)
        values = _embedding if request.task == pb.EMBED_TASK_EMBEDDING else _score
        vectors = [pb.EmbedVector(values=values(one)) for one in request.inputs]
        return pb.EmbedResponse(vectors=vectors)


def _embedding(given: pb.EmbedInput) -> list[float]:
    return [float(list(given.token_ids).count(len(SPECIAL) + i)) for i in range(len(WORDS))]


def _score(given: pb.EmbedInput) -> list[float]:
    first = set(given.token_ids[: given.first_segment_tokens])
    second = given.token_ids[given.first_segment_tokens :]
    return [float(sum(i in first for i in second if i >= len(SPECIAL)))]


async def serve_encoder(engine: ScriptedEncoder) -> tuple[grpc.aio.Server, str]:
    """A server with the engine, ready, and its address."""
    server = grpc.aio.server()
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    add_steady_telemetry(server)
    servicer = health.aio.HealthServicer()
    await servicer.set("octavo.engine.v1.Engine", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"
