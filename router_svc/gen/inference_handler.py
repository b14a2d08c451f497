# Generated from octavo/inference/v1/inference.proto by router_svc/codegen; do not edit.
"""What an implementation of octavo.inference.v1.Inference offers."""

from collections.abc import AsyncIterator
from typing import Protocol

from octavo.inference.v1 import inference_pb2 as pb
from router_svc.call_context import CallContext


class InferenceHandler(Protocol):
    """Text generation for clients, in any language.

    Requests arrive validated. Failures are raised as ApiError; cancelling the call
    or closing the iterator means that the client is gone.
    """

    async def create_chat_completion(
        self, request: pb.CreateChatCompletionRequest, context: CallContext
    ) -> pb.CreateChatCompletionResponse:
        """Answers a conversation."""
        ...

    def stream_chat_completion(
        self, request: pb.CreateChatCompletionRequest, context: CallContext
    ) -> AsyncIterator[pb.StreamChatCompletionResponse]:
        """Answers a conversation token by token."""
        ...

    async def render_chat_completion(
        self, request: pb.CreateChatCompletionRequest, context: CallContext
    ) -> pb.RenderChatCompletionResponse:
        """Shows what a conversation becomes before it is generated from: the rendered text and its tokens."""
        ...

    async def create_completion(
        self, request: pb.CreateCompletionRequest, context: CallContext
    ) -> pb.CreateCompletionResponse:
        """Continues a text."""
        ...

    def stream_completion(
        self, request: pb.CreateCompletionRequest, context: CallContext
    ) -> AsyncIterator[pb.CreateCompletionResponse]:
        """Continues a text token by token. Each message has the shape of the whole answer with the text,
        ids and logprobs that are new.
        """
        ...

    async def list_models(
        self, request: pb.ListModelsRequest, context: CallContext
    ) -> pb.ListModelsResponse:
        """Lists the models that are served."""
        ...

    async def get_model(self, request: pb.GetModelRequest, context: CallContext) -> pb.Model:
        """Describes one model."""
        ...

    async def explain_route(
        self, request: pb.ExplainRouteRequest, context: CallContext
    ) -> pb.ExplainRouteResponse:
        """Says which engine would answer a prompt now, and why not another."""
        ...

    async def tokenize(
        self, request: pb.TokenizeRequest, context: CallContext
    ) -> pb.TokenizeResponse:
        """Turns text or a conversation into token ids, exactly as a generation request would."""
        ...

    async def detokenize(
        self, request: pb.DetokenizeRequest, context: CallContext
    ) -> pb.DetokenizeResponse:
        """Turns token ids into text."""
        ...
