# Generated from octavo/inference/v1/responses.proto by router_svc/codegen; do not edit.
"""gRPC servicer of octavo.inference.v1.Responses."""

from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from octavo.inference.v1 import responses_pb2 as pb
from octavo.inference.v1 import responses_pb2_grpc as pb_grpc
from router_svc.gen import responses_validate as validate
from router_svc.gen.responses_handler import ResponsesHandler
from router_svc.http import rpc


class ResponsesGrpcServicer(pb_grpc.ResponsesServicer):
    """Answers gRPC calls with ResponsesHandler."""

    def __init__(self, handler: ResponsesHandler) -> None:
        self._handler = handler

    async def CreateResponse(
        self, request: pb.CreateResponseRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.Response:
        """Answers a conversation given as items."""
        return await rpc.reply(
            request,
            context,
            validate.validate_create_response_request,
            self._handler.create_response,
        )

    async def StreamResponse(
        self, request: pb.CreateResponseRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.ResponseEvent]:
        """Answers a conversation given as items, event by event."""
        async for item in rpc.stream(
            request,
            context,
            validate.validate_create_response_request,
            self._handler.stream_response,
        ):
            yield item
