"""Implements the public service, whichever way a call came."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api import chat, completions, routing, tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router_svc.call_context import CallContext
    from router_svc.metrics import RouterMetrics
    from router_svc.models import Models


class Inference:
    """The generated `InferenceHandler` over the served models. Every call is counted."""

    def __init__(self, models: Models, metrics: RouterMetrics) -> None:
        self._models = models
        self._metrics = metrics

    async def create_chat_completion(
        self, request: pb.CreateChatCompletionRequest, context: CallContext
    ) -> pb.CreateChatCompletionResponse:
        """See octavo.inference.v1.Inference."""
        with self._metrics.generation(
            "CreateChatCompletion", "chat", request.model, context
        ) as context:
            return await chat.create(request, self._models.of(request), context)

    async def stream_chat_completion(
        self, request: pb.CreateChatCompletionRequest, context: CallContext
    ) -> AsyncIterator[pb.StreamChatCompletionResponse]:
        """See octavo.inference.v1.Inference."""
        with self._metrics.generation(
            "StreamChatCompletion", "chat", request.model, context
        ) as context:
            async with aclosing(chat.stream(request, self._models.of(request), context)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def render_chat_completion(
        self, request: pb.CreateChatCompletionRequest, _context: CallContext
    ) -> pb.RenderChatCompletionResponse:
        """See octavo.inference.v1.Inference."""
        with self._metrics.call("RenderChatCompletion"):
            return await chat.render(request, self._models.of(request))

    async def create_completion(
        self, request: pb.CreateCompletionRequest, context: CallContext
    ) -> pb.CreateCompletionResponse:
        """See octavo.inference.v1.Inference."""
        with self._metrics.generation(
            "CreateCompletion", "text_completion", request.model, context
        ) as context:
            return await completions.create(request, self._models.of(request), context)

    async def stream_completion(
        self, request: pb.CreateCompletionRequest, context: CallContext
    ) -> AsyncIterator[pb.CreateCompletionResponse]:
        """See octavo.inference.v1.Inference."""
        with self._metrics.generation(
            "StreamCompletion", "text_completion", request.model, context
        ) as context:
            async with aclosing(
                completions.stream(request, self._models.of(request), context)
            ) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def list_models(
        self, _request: pb.ListModelsRequest, _context: CallContext
    ) -> pb.ListModelsResponse:
        """See octavo.inference.v1.Inference."""
        with self._metrics.call("ListModels"):
            models = [tokens.model_of(model, name) for name, model in self._models.named()]
            adapted = [tokens.model_of(model, model.name) for model in self._models.adapted()]
            return pb.ListModelsResponse(data=[*models, *adapted])

    async def get_model(self, request: pb.GetModelRequest, _context: CallContext) -> pb.Model:
        """See octavo.inference.v1.Inference."""
        with self._metrics.call("GetModel"):
            return tokens.model_of(self._models.find(request.model), request.model)

    async def explain_route(
        self, request: pb.ExplainRouteRequest, context: CallContext
    ) -> pb.ExplainRouteResponse:
        """See octavo.inference.v1.Inference."""
        with self._metrics.call("ExplainRoute"):
            return await routing.explain(request, self._models.of(request), context)

    async def tokenize(
        self, request: pb.TokenizeRequest, _context: CallContext
    ) -> pb.TokenizeResponse:
        """See octavo.inference.v1.Inference."""
        with self._metrics.call("Tokenize"):
            return await tokens.tokenize(request, self._models.of(request))

    async def detokenize(
        self, request: pb.DetokenizeRequest, _context: CallContext
    ) -> pb.DetokenizeResponse:
        """See octavo.inference.v1.Inference."""
        with self._metrics.call("Detokenize"):
            return await tokens.detokenize(request, self._models.of(request))
