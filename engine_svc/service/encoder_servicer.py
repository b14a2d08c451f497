"""octavo.engine.v1.Engine where the model embeds or scores, and does not generate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.engine.v1 import engine_pb2, engine_pb2_grpc

from engine_svc.service.errors import RequestError, does_not_generate
from engine_svc.service.request_story import valid_traceparent
from engine_svc.service.servicers import abort, deadline_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from engine_svc.service.async_encoder import AsyncEncoder
    from engine_svc.service.embedding import EmbedAdmission


class EncoderServicer(engine_pb2_grpc.EngineServicer):
    """octavo.engine.v1.Engine over an encoder."""

    def __init__(
        self,
        engine: AsyncEncoder,
        admission: EmbedAdmission,
        model_info: engine_pb2.GetModelInfoResponse,
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._model_info = model_info

    async def Embed(  # noqa: N802 -- gRPC's name
        self,
        request: engine_pb2.EmbedRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> engine_pb2.EmbedResponse:
        """One vector an input; ending the call drops what has not been computed."""
        try:
            inputs = self._admission.check(request)
        except RequestError as error:
            self._engine.refused(request.request_id, request.traceparent, error)
            await abort(context, error)
        try:
            vectors = await self._engine.compute(
                inputs,
                request_id=request.request_id,
                priority=request.priority,
                deadline=deadline_of(context),
                traceparent=valid_traceparent(request.traceparent),
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
