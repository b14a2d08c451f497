# Generated from octavo/inference/v1/messages.proto by router_svc/codegen; do not edit.
"""gRPC servicer of octavo.inference.v1.Messages."""

from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from octavo.inference.v1 import messages_pb2 as pb
from octavo.inference.v1 import messages_pb2_grpc as pb_grpc
from router_svc.gen import messages_validate as validate
from router_svc.gen.messages_handler import MessagesHandler
from router_svc.http import rpc


class MessagesGrpcServicer(pb_grpc.MessagesServicer):
    """Answers gRPC calls with MessagesHandler."""

    def __init__(self, handler: MessagesHandler) -> None:
        self._handler = handler

    async def CreateMessage(
        self, request: pb.CreateMessageRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.CreateMessageResponse:
        """Answers a conversation."""
        return await rpc.reply(
            request, context, validate.validate_create_message_request, self._handler.create_message
        )

    async def StreamMessage(
        self, request: pb.CreateMessageRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.StreamMessageResponse]:
        """Answers a conversation block by block. Its events, folded, are the whole answer."""
        async for item in rpc.stream(
            request, context, validate.validate_create_message_request, self._handler.stream_message
        ):
            yield item

    async def CountMessageTokens(
        self, request: pb.CountMessageTokensRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.CountMessageTokensResponse:
        """Counts the tokens that a conversation's prompt has, without answering it."""
        return await rpc.reply(
            request,
            context,
            validate.validate_count_message_tokens_request,
            self._handler.count_message_tokens,
        )
