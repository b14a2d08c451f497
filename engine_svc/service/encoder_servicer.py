"""octavo.engine.v1.Engine where the model embeds or scores, and does not generate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from google.rpc.code_pb2 import Code
from octavo.engine.v1 import engine_pb2, engine_pb2_grpc

from engine_svc.service.embedding import parse_embed
from engine_svc.service.errors import RequestError, does_not_generate
from engine_svc.service.servicers import abort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from engine_svc.service.async_encoder import AsyncEncoder
    from engine_svc.service.embedding import EncoderLimits
    from engine_svc.service.metrics import EngineMetrics


class EncoderServicer(engine_pb2_grpc.EngineServicer):
    """octavo.engine.v1.Engine over an encoder."""

    def __init__(
        self,
        engine: AsyncEncoder,
        metrics: EngineMetrics,
        limits: EncoderLimits,
        model_info: engine_pb2.GetModelInfoResponse,
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._limits = limits
        self._model_info = model_info

    async def Embed(  # noqa: N802 -- gRPC's name
        self,
        request: engine_pb2.EmbedRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> engine_pb2.EmbedResponse:
        """One vector an input; ending the call drops what has not been computed."""
        remaining = context.time_remaining()
        deadline = None if remaining is None else time.monotonic() + remaining
        try:
            inputs = parse_embed(request, self._limits)
        except RequestError as refusal:
            invalid = refusal.status.code == Code.INVALID_ARGUMENT
            self._metrics.on_rejected("invalid" if invalid else "expectation")
            await abort(context, refusal)
        try:
            vectors = await self._engine.compute(
                inputs,
                request_id=request.request_id,
                priority=request.priority,
                deadline=deadline,
            )
        except RequestError as error:
            await abort(context, error)
        return engine_pb2.EmbedResponse(
            vectors=[engine_pb2.EmbedVector(values=vector.tolist()) for vector in vectors],
            prompt_tokens=sum(len(item.token_ids) for item in inputs),
        )

    async def Generate(  # noqa: N802 -- gRPC's name
        self,
        request: engine_pb2.GenerateRequest,  # noqa: ARG002 -- nothing in it could change the answer
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[engine_pb2.GenerateResponse]:
        """Refuses."""
        await abort(context, does_not_generate())
        yield engine_pb2.GenerateResponse()  # never: it makes this a stream

    async def Session(  # noqa: N802 -- gRPC's name
        self,
        request_iterator: AsyncIterator[engine_pb2.SessionRequest],  # noqa: ARG002 -- as above
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[engine_pb2.SessionResponse]:
        """Refuses."""
        await abort(context, does_not_generate())
        yield engine_pb2.SessionResponse()

    async def GetModelInfo(  # noqa: N802 -- gRPC's name
        self,
        request: engine_pb2.GetModelInfoRequest,  # noqa: ARG002 -- it has no fields
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 -- gRPC's signature
    ) -> engine_pb2.GetModelInfoResponse:
        """The model and the limits, fixed since start-up."""
        return self._model_info
