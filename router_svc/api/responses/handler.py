"""Implements the Responses service, whichever way a call came."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from router_svc.api import params
from router_svc.api.conversation import AnswerDelta, Conversation
from router_svc.api.field_names import FieldNames
from router_svc.api.responses.answer import ResponseBuilder
from router_svc.api.responses.logprobs import of_parts
from router_svc.api.responses.request import CHAT_NAMES, chat_request_of, head_of
from router_svc.api.token_logprobs import is_shown, token_logprobs
from router_svc.errors import ApiError, ErrorKind
from router_svc.generation_types import FinishReason, Started

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from octavo.inference.v1 import responses_pb2 as pb

    from router_svc.call_context import CallContext
    from router_svc.metrics import RouterMetrics
    from router_svc.models import Models


class Responses:
    """The generated `ResponsesHandler` over the served models. Every call is counted."""

    def __init__(self, models: Models, metrics: RouterMetrics) -> None:
        self._models = models
        self._metrics = metrics

    async def create_response(
        self, request: pb.CreateResponseRequest, context: CallContext
    ) -> pb.Response:
        """See octavo.inference.v1.Responses."""
        with self._metrics.generation("CreateResponse", "chat", request.model, context) as context:
            params.check_stream_options(request)
            answer = await _Answer.prepare(request, self._models, context)
            async with aclosing(answer.events()) as events:
                async for _ in events:
                    pass  # the response grows with them
            return answer.builder.response

    async def stream_response(
        self, request: pb.CreateResponseRequest, context: CallContext
    ) -> AsyncIterator[pb.ResponseEvent]:
        """See octavo.inference.v1.Responses."""
        with self._metrics.generation("StreamResponse", "chat", request.model, context) as context:
            answer = await _Answer.prepare(request, self._models, context)
            try:
                async with aclosing(answer.events()) as events:
                    async for event in events:
                        yield event
            except ApiError as error:
                # Until the first event the error can still be the whole answer.
                if answer.builder.has_started:
                    for event in answer.builder.fail(_code_of(error), error.message):
                        yield event
                raise


class _Answer:
    """One request on its way through."""

    def __init__(
        self, conversation: Conversation, builder: ResponseBuilder, names: FieldNames
    ) -> None:
        self.builder = builder
        self._conversation = conversation
        self._names = names

    @classmethod
    async def prepare(
        cls, request: pb.CreateResponseRequest, models: Models, context: CallContext
    ) -> _Answer:
        """Checks a validated request. Raises ApiError, naming its own field."""
        model = models.of(request)
        names = FieldNames(CHAT_NAMES)
        chat = chat_request_of(request, names)
        with names.in_errors():
            conversation = await Conversation.prepare(chat, model, context)
        head = head_of(request)
        head.id = f"resp_{conversation.request_id}"
        context.call.response_id = head.id
        head.created_at = conversation.created
        head.model = model.name
        return cls(conversation, ResponseBuilder(head, conversation.request_id), names)

    async def events(self) -> AsyncGenerator[pb.ResponseEvent, None]:
        """Runs the request. Closing the generator aborts it."""
        with self._names.in_errors():
            async with aclosing(self._conversation.deltas()) as deltas:
                async for delta in deltas:
                    match delta:
                        case Started():
                            events = self.builder.start()
                        case AnswerDelta():
                            events = self._add(delta)
                        case _:
                            continue
                    for event in events:
                        yield event

    def _add(self, delta: AnswerDelta) -> list[pb.ResponseEvent]:
        conversation = self._conversation
        parts = delta.parts
        shown = [each for each in delta.logprobs if is_shown(conversation, each.token_id)]
        logprobs = of_parts(parts, token_logprobs(conversation, shown))
        events = [
            event
            for part, own in zip(parts, logprobs, strict=True)
            for event in self.builder.add(part, own)
        ]
        if delta.finish_reason is not None:
            if delta.finish_reason is FinishReason.CANCELLED:
                raise ApiError(ErrorKind.CANCELLED)
            cut = delta.finish_reason is FinishReason.LENGTH
            events += self.builder.finish(conversation.usage, cut=cut, now=int(time.time()))
        return events


def _code_of(error: ApiError) -> str:
    is_limit = error.kind is ErrorKind.RATE_LIMITED
    return "rate_limit_exceeded" if is_limit else "server_error"
