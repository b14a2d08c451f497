"""Chat completions: a conversation becomes a prompt, deltas become chunks or a whole answer."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api import params
from router_svc.errors import invalid
from router_svc.generation import generate
from router_svc.generation_types import (
    ChoiceDelta,
    GenerationRequest,
    Logprob,
    PromptLogprobs,
    Started,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from router_svc.call_context import CallContext
    from router_svc.served_model import ServedModel


@dataclass(slots=True)
class _Chat:
    """One request on its way through: what every chunk repeats, and what adds up to the usage."""

    request: pb.CreateChatCompletionRequest
    model: ServedModel
    generation: GenerationRequest
    created: int = field(default_factory=lambda: int(time.time()))
    cached_tokens: int = 0
    completion_tokens: int = 0

    @property
    def id(self) -> str:
        return f"chatcmpl-{self.generation.request_id}"

    @property
    def usage(self) -> pb.Usage:
        prompt_tokens = len(self.generation.prompt_token_ids)
        return params.usage_of(prompt_tokens, self.completion_tokens, self.cached_tokens)

    def logprobs(self, entries: Iterable[Logprob]) -> pb.ChatLogprobs:
        """The public form of an answer's log-probabilities."""
        text_of = self.model.tokenizer.token_text
        return pb.ChatLogprobs(
            content=[
                pb.TokenLogprob(
                    token=text_of(entry.token_id),
                    logprob=params.finite(entry.logprob),
                    bytes=self._shown_bytes(entry.token_id),
                    top_logprobs=[
                        pb.TopLogprob(
                            token=text_of(token_id),
                            logprob=params.finite(logprob),
                            bytes=self._shown_bytes(token_id),
                        )
                        for token_id, logprob in entry.top
                    ],
                )
                for entry in entries
            ]
        )

    def _shown_bytes(self, token_id: int) -> bytes:
        # A control token that is left out of the text has no bytes: those of all entries, joined,
        # are the content's.
        tokenizer = self.model.tokenizer
        hidden = self.generation.skip_special_tokens and tokenizer.is_special(token_id)
        return b"" if hidden else tokenizer.token_bytes(token_id)

    def chunk(self, *choices: pb.ChatChunkChoice) -> pb.StreamChatCompletionResponse:
        return pb.StreamChatCompletionResponse(
            id=self.id, created=self.created, model=self.model.name, choices=choices
        )


async def create(
    request: pb.CreateChatCompletionRequest, model: ServedModel, context: CallContext
) -> pb.CreateChatCompletionResponse:
    """The whole answer."""
    params.check_stream_options(request)
    chat = await _prepare(request, model, context)
    n = chat.generation.n
    texts = [""] * n
    token_ids: list[list[int]] = [[] for _ in range(n)]
    logprobs: list[list[Logprob]] = [[] for _ in range(n)]
    last: dict[int, ChoiceDelta] = {}
    answer = pb.CreateChatCompletionResponse(
        id=chat.id, created=chat.created, model=model.name, usage=pb.Usage()
    )
    async with aclosing(generate(chat.generation, model.engine, model.tokenizer)) as deltas:
        async for delta in deltas:
            match delta:
                case Started(cached_tokens):
                    chat.cached_tokens = cached_tokens
                case PromptLogprobs(entries):
                    answer.prompt_logprobs.extend(
                        params.prompt_logprobs_of(
                            entries, model.tokenizer, most=request.prompt_logprobs
                        )
                    )
                case ChoiceDelta():
                    texts[delta.choice] += delta.text
                    token_ids[delta.choice] += delta.token_ids
                    logprobs[delta.choice] += delta.logprobs
                    chat.completion_tokens += len(delta.token_ids)
                    if delta.finish_reason is not None:
                        last[delta.choice] = delta
    if request.return_token_ids:
        answer.prompt_token_ids.extend(chat.generation.prompt_token_ids)
    for index, text in enumerate(texts):
        end = last[index]
        answer.choices.append(
            pb.ChatChoice(
                index=index,
                message=pb.AssistantMessage(role=pb.ROLE_ASSISTANT, content=text),
                logprobs=chat.logprobs(logprobs[index]) if request.logprobs else None,
                finish_reason=params.FINISH_REASONS[end.finish_reason],  # type: ignore[index]
                stop_reason=params.stop_reason_of(end.stop_reason),
                token_ids=token_ids[index] if request.return_token_ids else (),
            )
        )
    answer.usage.CopyFrom(chat.usage)
    return answer


async def stream(
    request: pb.CreateChatCompletionRequest, model: ServedModel, context: CallContext
) -> AsyncGenerator[pb.StreamChatCompletionResponse, None]:
    """The answer in chunks: a role chunk per choice, text, a finish chunk per choice, the usage."""
    chat = await _prepare(request, model, context)
    options = request.stream_options
    async with aclosing(generate(chat.generation, model.engine, model.tokenizer)) as deltas:
        async for delta in deltas:
            match delta:
                case Started(cached_tokens):
                    chat.cached_tokens = cached_tokens
                    if request.HasField("prompt_logprobs"):
                        continue  # the first chunk waits for them
                    chunks = list(_role_chunks(chat))
                case PromptLogprobs(entries):
                    chunks = list(_role_chunks(chat))
                    chunks[0].prompt_logprobs.extend(
                        params.prompt_logprobs_of(
                            entries, model.tokenizer, most=request.prompt_logprobs
                        )
                    )
                case ChoiceDelta():
                    chat.completion_tokens += len(delta.token_ids)
                    chunks = list(_delta_chunks(chat, delta))
            for chunk in chunks:
                if options.continuous_usage_stats:
                    chunk.usage.CopyFrom(chat.usage)
                yield chunk
    if options.include_usage:
        end = chat.chunk()
        end.usage.CopyFrom(chat.usage)
        yield end


async def _prepare(
    request: pb.CreateChatCompletionRequest, model: ServedModel, context: CallContext
) -> _Chat:
    if request.HasField("top_logprobs") and not request.logprobs:
        raise invalid("top_logprobs", "top_logprobs needs logprobs to be true")
    generation = params.generation_of(
        request,
        model,
        context,
        max_tokens=_max_tokens(request),
        logprobs=request.top_logprobs if request.logprobs else None,
        prompt_logprobs=request.prompt_logprobs if request.HasField("prompt_logprobs") else None,
    )
    prompt = await model.chat_prompt(request)
    return _Chat(request, model, params.with_prompt(generation, prompt, model.info, "messages"))


def _max_tokens(request: pb.CreateChatCompletionRequest) -> int | None:
    given = {
        getattr(request, name)
        for name in ("max_completion_tokens", "max_tokens")
        if request.HasField(name)
    }
    if len(given) == 2:
        raise invalid("max_tokens", "max_tokens and max_completion_tokens contradict each other")
    return next(iter(given), None)


def _role_chunks(chat: _Chat) -> Iterator[pb.StreamChatCompletionResponse]:
    for index in range(chat.generation.n):
        delta = pb.ChatDelta(role=pb.ROLE_ASSISTANT, content="")
        chunk = chat.chunk(pb.ChatChunkChoice(index=index, delta=delta))
        if index == 0 and chat.request.return_token_ids:
            chunk.prompt_token_ids.extend(chat.generation.prompt_token_ids)
        yield chunk


def _delta_chunks(chat: _Chat, delta: ChoiceDelta) -> Iterator[pb.StreamChatCompletionResponse]:
    """One chunk with the text, if there is any, and one with the finish reason, if there is one.

    Tokens and log-probabilities go with the text; without text, with the finish reason.
    """
    carry = pb.ChatChunkChoice(index=delta.choice, delta=pb.ChatDelta())
    if chat.request.return_token_ids:
        carry.token_ids.extend(delta.token_ids)
    if chat.request.logprobs and delta.logprobs:
        carry.logprobs.CopyFrom(chat.logprobs(delta.logprobs))
    if delta.text:
        carry.delta.content = delta.text
        yield chat.chunk(carry)
        carry = pb.ChatChunkChoice(index=delta.choice, delta=pb.ChatDelta())
    if delta.finish_reason is not None:
        carry.finish_reason = params.FINISH_REASONS[delta.finish_reason]
        if (stop_reason := params.stop_reason_of(delta.stop_reason)) is not None:
            carry.stop_reason.CopyFrom(stop_reason)
        yield chat.chunk(carry)
