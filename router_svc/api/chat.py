"""Chat completions: an answer's parts as chunks, or joined to a whole message."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api import params
from router_svc.api.conversation import AnswerDelta, Conversation, prompt_of
from router_svc.api.token_logprobs import token_logprobs
from router_svc.api.tooling import tool_use_of
from router_svc.generation_types import PromptLogprobs, Started
from router_svc.parsing.parts import Content, Part, Reasoning, ToolArguments, ToolCallStart

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from router_svc.call_context import CallContext
    from router_svc.generation_types import Logprob
    from router_svc.served_model import ServedModel


async def create(
    request: pb.CreateChatCompletionRequest, model: ServedModel, context: CallContext
) -> pb.CreateChatCompletionResponse:
    """The whole answer."""
    params.check_stream_options(request)
    conversation = await Conversation.prepare(request, model, context)
    answer = pb.CreateChatCompletionResponse(
        id=_id(conversation), created=conversation.created, model=model.name
    )
    context.call.response_id = answer.id
    choices = [_WholeChoice(conversation, index) for index in range(conversation.n)]
    async with aclosing(conversation.deltas()) as events:
        async for event in events:
            match event:
                case PromptLogprobs(entries):
                    answer.prompt_logprobs.extend(
                        params.prompt_logprobs_of(
                            entries, model.tokenizer, most=request.prompt_logprobs
                        )
                    )
                case AnswerDelta():
                    choices[event.choice].add(event)
    if request.return_token_ids:
        answer.prompt_token_ids.extend(conversation.generation.prompt_token_ids)
    answer.choices.extend(choice.message() for choice in choices)
    answer.usage.CopyFrom(conversation.usage)
    return answer


async def stream(
    request: pb.CreateChatCompletionRequest, model: ServedModel, context: CallContext
) -> AsyncGenerator[pb.StreamChatCompletionResponse, None]:
    """The answer in chunks: for each choice its role, its parts, its end; then the usage."""
    conversation = await Conversation.prepare(request, model, context)
    shape = _Chunks(conversation)
    context.call.response_id = _id(conversation)
    options = request.stream_options
    usage_in_all = options.continuous_usage_stats
    async with aclosing(conversation.deltas()) as events:
        async for event in events:
            match event:
                case AnswerDelta():
                    chunks = shape.of(event)
                case Started():
                    if request.HasField("prompt_logprobs"):
                        continue  # the first chunk waits for them
                    chunks = shape.roles()
                case PromptLogprobs(entries):
                    chunks = shape.roles()
                    chunks[0].prompt_logprobs.extend(
                        params.prompt_logprobs_of(
                            entries, model.tokenizer, most=request.prompt_logprobs
                        )
                    )
            for chunk in chunks:
                if usage_in_all:
                    chunk.usage.CopyFrom(conversation.usage)
                yield chunk
    if options.include_usage:
        end = shape.empty()
        end.usage.CopyFrom(conversation.usage)
        yield end


async def render(
    request: pb.CreateChatCompletionRequest, model: ServedModel
) -> pb.RenderChatCompletionResponse:
    """The prompt that the same request would generate from."""
    prompt = await prompt_of(request, model, await model.run(lambda: tool_use_of(request)))
    return pb.RenderChatCompletionResponse(
        prompt=prompt.text,
        prompt_token_ids=prompt.token_ids,
        count=len(prompt.token_ids),
        max_model_len=model.info.max_model_len,
    )


class _WholeChoice:
    """One choice's deltas, joined."""

    def __init__(self, conversation: Conversation, index: int) -> None:
        self._conversation = conversation
        self._choice = pb.ChatChoice(index=index)
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[ToolCallStart, list[str]]] = []
        self._logprobs: list[Logprob] = []

    def add(self, delta: AnswerDelta) -> None:
        for part in delta.parts:
            match part:
                case Content(text):
                    self._content.append(text)
                case Reasoning(text):
                    self._reasoning.append(text)
                case ToolCallStart():
                    self._calls.append((part, []))
                case ToolArguments(call, text):
                    self._calls[call][1].append(text)
        self._logprobs += delta.logprobs
        if self._conversation.request.return_token_ids:
            self._choice.token_ids.extend(delta.token_ids)
        if delta.finish_reason is not None:
            self._choice.finish_reason = params.FINISH_REASONS[delta.finish_reason]
        if (stop_reason := params.stop_reason_of(delta.stop_reason)) is not None:
            self._choice.stop_reason.CopyFrom(stop_reason)

    def message(self) -> pb.ChatChoice:
        """The choice, once all its deltas are in."""
        message = pb.AssistantMessage(role=pb.ROLE_ASSISTANT)
        content = "".join(self._content)
        if content or not self._calls:
            message.content = content
        if self._reasoning:
            message.reasoning_content = "".join(self._reasoning)
        for start, fragments in self._calls:
            function = pb.FunctionCall(name=start.name, arguments="".join(fragments))
            message.tool_calls.add(id=start.id, type="function", function=function)
        self._choice.message.CopyFrom(message)
        if self._conversation.request.logprobs:
            entries = token_logprobs(self._conversation, self._logprobs)
            self._choice.logprobs.CopyFrom(pb.ChatLogprobs(content=entries))
        return self._choice


def _id(conversation: Conversation) -> str:
    return f"chatcmpl-{conversation.request_id}"


class _Chunks:
    """One answer's chunks. What all of them have in common is copied, which is the cheapest way."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._common = pb.StreamChatCompletionResponse(
            id=_id(conversation), created=conversation.created, model=conversation.model.name
        )
        self._with_token_ids = conversation.request.return_token_ids
        self._with_logprobs = conversation.request.logprobs

    def empty(self) -> pb.StreamChatCompletionResponse:
        """A chunk of no choice."""
        chunk = pb.StreamChatCompletionResponse()
        chunk.CopyFrom(self._common)
        return chunk

    def roles(self) -> list[pb.StreamChatCompletionResponse]:
        """What each choice begins with."""
        chunks = []
        for index in range(self._conversation.n):
            chunk, choice = self._chunk(index)
            choice.delta.role = pb.ROLE_ASSISTANT
            choice.delta.content = ""
            chunks.append(chunk)
        if self._with_token_ids:
            chunks[0].prompt_token_ids.extend(self._conversation.generation.prompt_token_ids)
        return chunks

    def of(self, delta: AnswerDelta) -> list[pb.StreamChatCompletionResponse]:
        """One chunk for each part, and one with the finish reason, if there is one.

        Tokens and log-probabilities go with the first of them.
        """
        chunks = []
        for part in delta.parts:
            chunk, choice = self._chunk(delta.choice)
            _write_part(choice.delta, part)
            chunks.append(chunk)
        if delta.finish_reason is not None:
            chunk, choice = self._chunk(delta.choice)
            choice.delta.SetInParent()
            choice.finish_reason = params.FINISH_REASONS[delta.finish_reason]
            if (stop_reason := params.stop_reason_of(delta.stop_reason)) is not None:
                choice.stop_reason.CopyFrom(stop_reason)
            chunks.append(chunk)
        if self._with_token_ids:
            chunks[0].choices[0].token_ids.extend(delta.token_ids)
        if self._with_logprobs and delta.logprobs:
            entries = token_logprobs(self._conversation, delta.logprobs)
            chunks[0].choices[0].logprobs.content.extend(entries)
        return chunks

    def _chunk(self, index: int) -> tuple[pb.StreamChatCompletionResponse, pb.ChatChunkChoice]:
        chunk = self.empty()
        choice = chunk.choices.add()
        choice.index = index
        return chunk, choice


def _write_part(delta: pb.ChatDelta, part: Part) -> None:
    match part:
        case Content(text):
            delta.content = text
        case Reasoning(text):
            delta.reasoning_content = text
        case ToolCallStart(call, id, name):
            function = pb.FunctionCallDelta(name=name, arguments="")
            delta.tool_calls.add(index=call, id=id, type="function", function=function)
        case ToolArguments(call, text):
            delta.tool_calls.add(index=call, function=pb.FunctionCallDelta(arguments=text))
