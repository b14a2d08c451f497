# Generated from octavo/inference/v1/inference.proto by router_svc/codegen; do not edit.
"""gRPC servicer of octavo.inference.v1.Inference."""

from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc as pb_grpc
from router_svc.gen import inference_validate as validate
from router_svc.gen.inference_handler import InferenceHandler
from router_svc.http import rpc


class InferenceGrpcServicer(pb_grpc.InferenceServicer):
    """Answers gRPC calls with InferenceHandler."""

    def __init__(self, handler: InferenceHandler) -> None:
        self._handler = handler

    async def CreateChatCompletion(
        self, request: pb.CreateChatCompletionRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.CreateChatCompletionResponse:
        """Answers a conversation."""
        return await rpc.reply(
            request,
            context,
            validate.validate_create_chat_completion_request,
            self._handler.create_chat_completion,
        )

    async def StreamChatCompletion(
        self, request: pb.CreateChatCompletionRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.StreamChatCompletionResponse]:
        """Answers a conversation token by token."""
        async for item in rpc.stream(
            request,
            context,
            validate.validate_create_chat_completion_request,
            self._handler.stream_chat_completion,
        ):
            yield item

    async def RenderChatCompletion(
        self, request: pb.CreateChatCompletionRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.RenderChatCompletionResponse:
        """Shows what a conversation becomes before it is generated from: the rendered text and its tokens."""
        return await rpc.reply(
            request,
            context,
            validate.validate_create_chat_completion_request,
            self._handler.render_chat_completion,
        )

    async def CreateCompletion(
        self, request: pb.CreateCompletionRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.CreateCompletionResponse:
        """Continues a text."""
        return await rpc.reply(
            request,
            context,
            validate.validate_create_completion_request,
            self._handler.create_completion,
        )

    async def StreamCompletion(
        self, request: pb.CreateCompletionRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.CreateCompletionResponse]:
        """Continues a text token by token. Each message has the shape of the whole answer with the text,
        ids and logprobs that are new.
        """
        async for item in rpc.stream(
            request,
            context,
            validate.validate_create_completion_request,
            self._handler.stream_completion,
        ):
            yield item

    async def ListModels(
        self, request: pb.ListModelsRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.ListModelsResponse:
        """Lists the models that are served."""
        return await rpc.reply(
            request, context, validate.validate_list_models_request, self._handler.list_models
        )

    async def GetModel(
        self, request: pb.GetModelRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.Model:
        """Describes one model."""
        return await rpc.reply(
            request, context, validate.validate_get_model_request, self._handler.get_model
        )

    async def ExplainRoute(
        self, request: pb.ExplainRouteRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.ExplainRouteResponse:
        """Says which engine would answer a prompt now, and why not another."""
        return await rpc.reply(
            request, context, validate.validate_explain_route_request, self._handler.explain_route
        )

    async def Tokenize(
        self, request: pb.TokenizeRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.TokenizeResponse:
        """Turns text or a conversation into token ids, exactly as a generation request would."""
        return await rpc.reply(
            request, context, validate.validate_tokenize_request, self._handler.tokenize
        )

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.DetokenizeResponse:
        """Turns token ids into text."""
        return await rpc.reply(
            request, context, validate.validate_detokenize_request, self._handler.detokenize
        )
