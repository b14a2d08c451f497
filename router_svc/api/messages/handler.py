"""Implements the public service Messages, whichever way a call came."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from octavo.inference.v1 import messages_pb2 as pb

from router_svc.api.chat_prompt import chat_prompt
from router_svc.api.conversation import AnswerDelta, Conversation
from router_svc.api.messages.answer import AnswerEvents, WholeAnswer
from router_svc.api.messages.convert import to_chat
from router_svc.api.tooling import tool_use_of
from router_svc.generation_types import Started

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from router_svc.call_context import CallContext
    from router_svc.metrics import RouterMetrics
    from router_svc.models import Models
    from router_svc.served_model import ServedModel


class Messages:
    """The generated `MessagesHandler` over the served models. Every call is counted."""

    def __init__(self, models: Models, metrics: RouterMetrics) -> None:
        self._models = models
        self._metrics = metrics

    async def create_message(
        self, request: pb.CreateMessageRequest, context: CallContext
    ) -> pb.CreateMessageResponse:
        """See octavo.inference.v1.Messages."""
        with self._metrics.generation("CreateMessage", "chat", request.model, context) as context:
            whole = WholeAnswer()
            async with aclosing(_events(request, self._models.of(request), context)) as events:
                async for event in events:
                    whole.add(event)
            return whole.message()

    async def stream_message(
        self, request: pb.CreateMessageRequest, context: CallContext
    ) -> AsyncIterator[pb.StreamMessageResponse]:
        """See octavo.inference.v1.Messages."""
        with self._metrics.generation("StreamMessage", "chat", request.model, context) as context:
            async with aclosing(_events(request, self._models.of(request), context)) as events:
                async for event in events:
                    yield event

    async def count_message_tokens(
        self, request: pb.CountMessageTokensRequest, _context: CallContext
    ) -> pb.CountMessageTokensResponse:
        """See octavo.inference.v1.Messages."""
        with self._metrics.call("CountMessageTokens"):
            model = self._models.of(request)
            converted = await model.run(lambda: to_chat(request))
            with converted.names.in_errors():
                tools = await model.run(lambda: tool_use_of(converted.request))
                prompt = await chat_prompt(converted.request, model, tools)
            return pb.CountMessageTokensResponse(input_tokens=len(prompt.token_ids))


async def _events(
    request: pb.CreateMessageRequest, model: ServedModel, context: CallContext
) -> AsyncGenerator[pb.StreamMessageResponse, None]:
    """The events of the answer, which the stream sends and the whole answer folds."""
    converted = await model.run(lambda: to_chat(request))
    with converted.names.in_errors():
        conversation = await Conversation.prepare(converted.request, model, context)
        events = AnswerEvents(
            message_id=f"msg_{conversation.request_id}", model=model.name, request=request
        )
        context.call.response_id = f"msg_{conversation.request_id}"
        async with aclosing(conversation.deltas()) as deltas:
            async for delta in deltas:
                match delta:
                    case Started():
                        for event in events.start(conversation.usage):
                            yield event
                    case AnswerDelta():
                        for event in events.more(delta.parts):
                            yield event
                        if delta.finish_reason is not None:
                            ending = events.end(
                                delta.finish_reason, delta.stop_reason, conversation.usage
                            )
                            for event in ending:
                                yield event
