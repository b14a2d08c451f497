"""Calls of an engine that embed or score inputs: one RPC each, and all end with the connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from router_svc.engines.encoder_types import EncoderTask
from router_svc.errors import ApiError, ErrorKind, from_grpc_status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from router_svc.engines.encoder_types import EncoderInput, EncoderRequest

_STATUS_KEY = "grpc-status-details-bin"  # where google.rpc.Status travels
_TASKS = {
    EncoderTask.EMBED: pb.EMBED_TASK_EMBEDDING,
    EncoderTask.SCORE: pb.EMBED_TASK_SCORE,
}


class EncoderCalls:
    """The calls that are under way on one engine."""

    def __init__(self) -> None:
        self._ends: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._ends)

    async def run(
        self,
        channel: grpc.aio.Channel,
        request: EncoderRequest,
        inputs: Iterable[EncoderInput],
        tokenizer_sha256: str,
    ) -> list[Sequence[float]]:
        """One vector an input, in their order.

        Cancelling it cancels the engine's work. Raises ApiError if the engine refuses, is lost, or
        `fail_all` came.
        """
        message = pb.EmbedRequest(
            request_id=request.request_id,
            task=_TASKS[request.task],
            inputs=[
                pb.EmbedInput(
                    token_ids=one.token_ids, first_segment_tokens=one.first_segment_tokens
                )
                for one in inputs
            ],
            expect=pb.Expect(tokenizer_sha256=tokenizer_sha256),
            tenant=request.tenant,
            traceparent=request.traceparent,
            priority=request.priority,
        )
        call = engine_pb2_grpc.EngineStub(channel).Embed(message, timeout=request.timeout)
        answer = asyncio.ensure_future(_answer_of(call))
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.add(end)
        try:
            await asyncio.wait((answer, end), return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                end.result()
            if answer.cancelled():  # by the channel, as it closed
                raise ApiError(ErrorKind.UNAVAILABLE, "the engine was lost")
            vectors = answer.result().vectors
        except grpc.aio.AioRpcError as error:
            details = dict(error.trailing_metadata() or ()).get(_STATUS_KEY, b"")
            raise from_grpc_status(error.code().value[0], error.details() or "", details) from error
        finally:
            self._ends.discard(end)
            answer.cancel()
        if len(vectors) != len(message.inputs):
            raise ApiError(ErrorKind.INTERNAL, "the engine did not answer every input")
        return [vector.values for vector in vectors]

    def fail_all(self, error: ApiError) -> None:
        """Ends every call with an error."""
        for end in self._ends:
            if not end.done():
                end.set_exception(error)


async def _answer_of(call: Awaitable[pb.EmbedResponse]) -> pb.EmbedResponse:
    return await call
