"""A handler small enough to see through: the request's model says how it behaves."""

import asyncio
import threading
from collections.abc import AsyncIterator

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.call_context import CallContext
from router_svc.errors import ApiError, ErrorKind


class FakeInference:
    """Answers at once, unless the model's name asks for a fault.

    "busy" and "gone" fail before anything is sent, "breaks" after one item, "crashes" with a bug,
    "nan" with a number that JSON lacks, "hangs" never answers, "slow" pauses, "endless" does
    not stop.
    """

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []
        self.has_started = threading.Event()
        self.was_cancelled = threading.Event()
        self.was_closed = threading.Event()
        self.num_produced = 0

    async def create_chat_completion(
        self, request: pb.CreateChatCompletionRequest, context: CallContext
    ) -> pb.CreateChatCompletionResponse:
        await self._behave(request.model, context)
        content = request.messages[-1].content.text
        choice = pb.ChatChoice(
            message=pb.AssistantMessage(role=pb.ROLE_ASSISTANT, content=content),
            finish_reason=pb.FINISH_REASON_STOP,
        )
        if request.model == "nan":
            choice.logprobs.content.add(token="a", logprob=float("nan"))
        return pb.CreateChatCompletionResponse(
            id="chatcmpl-1", created=7, model="fake", choices=[choice], usage=_usage()
        )

    async def stream_chat_completion(
        self, request: pb.CreateChatCompletionRequest, context: CallContext
    ) -> AsyncIterator[pb.StreamChatCompletionResponse]:
        try:
            async for item in self._chunks(request.model, context):
                yield item
        finally:
            self.was_closed.set()

    async def create_completion(
        self, request: pb.CreateCompletionRequest, context: CallContext
    ) -> pb.CreateCompletionResponse:
        await self._behave(request.model, context)
        return pb.CreateCompletionResponse(id="cmpl-1", choices=[pb.CompletionChoice(text="a")])

    async def stream_completion(
        self, request: pb.CreateCompletionRequest, context: CallContext
    ) -> AsyncIterator[pb.CreateCompletionResponse]:
        await self._behave(request.model, context)
        yield pb.CreateCompletionResponse(id="cmpl-1", choices=[pb.CompletionChoice(text="a")])

    async def list_models(
        self, request: pb.ListModelsRequest, context: CallContext
    ) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(data=[pb.Model(id="fake", root="/models/fake")])

    async def get_model(self, request: pb.GetModelRequest, context: CallContext) -> pb.Model:
        if request.model == "missing":
            raise ApiError(ErrorKind.NOT_FOUND, "no such model", param="model")
        return pb.Model(id=request.model)

    async def render_chat_completion(
        self, request: pb.CreateChatCompletionRequest, context: CallContext
    ) -> pb.RenderChatCompletionResponse:
        return pb.RenderChatCompletionResponse()

    async def explain_route(
        self, request: pb.ExplainRouteRequest, context: CallContext
    ) -> pb.ExplainRouteResponse:
        return pb.ExplainRouteResponse()

    async def tokenize(
        self, request: pb.TokenizeRequest, context: CallContext
    ) -> pb.TokenizeResponse:
        return pb.TokenizeResponse(count=1, tokens=[1])

    async def detokenize(
        self, request: pb.DetokenizeRequest, context: CallContext
    ) -> pb.DetokenizeResponse:
        return pb.DetokenizeResponse(prompt="text")

    async def _chunks(
        self, model: str, context: CallContext
    ) -> AsyncIterator[pb.StreamChatCompletionResponse]:
        await self._behave(model, context)
        for index, text in enumerate(("", "Hal", "lo")):
            if index and model == "slow":
                await asyncio.sleep(0.2)
            if index and model == "breaks":
                raise ApiError(ErrorKind.UNAVAILABLE, "the engine was lost", code="engine_lost")
            if index and model == "crashes-later":
                raise RuntimeError("password=hunter2")
            if index and model == "hangs-later":
                await self._hang()
            yield _chunk(content=text, role=None if index else pb.ROLE_ASSISTANT)
        while model == "endless":
            self.num_produced += 1
            yield _chunk(content="x" * 4096)
        yield _chunk(finish_reason=pb.FINISH_REASON_STOP)
        yield pb.StreamChatCompletionResponse(id="chatcmpl-1", created=7, usage=_usage())

    async def _behave(self, model: str, context: CallContext) -> None:
        self.contexts.append(context)
        if model == "busy":
            raise ApiError(ErrorKind.RATE_LIMITED, "the queue is full", retry_after=2.5)
        if model == "gone":
            raise ApiError(ErrorKind.UNAVAILABLE, "no engine is ready")
        if model == "crashes":
            raise RuntimeError("password=hunter2")
        if model == "hangs":
            await self._hang()

    async def _hang(self) -> None:
        self.has_started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise


def _chunk(
    content: str | None = None, role: int | None = None, finish_reason: int | None = None
) -> pb.StreamChatCompletionResponse:
    delta = pb.ChatDelta(content=content, role=role)
    choice = pb.ChatChunkChoice(delta=delta, finish_reason=finish_reason)
    return pb.StreamChatCompletionResponse(
        id="chatcmpl-1", created=7, model="fake", choices=[choice]
    )


def _usage() -> pb.Usage:
    details = pb.PromptTokensDetails(cached_tokens=1)
    return pb.Usage(
        prompt_tokens=2, completion_tokens=3, total_tokens=5, prompt_tokens_details=details
    )
