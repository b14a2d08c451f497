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
    from collections.abc import AsyncGenerator, Iterator

    from router_svc.call_context import CallContext
    from router_svc.served_model import ServedModel
    from router_svc.text.tokenizer import Tokenizer


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
                        params.prompt_logprobs_of(entries, model.tokenizer)
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
                logprobs=_logprobs(logprobs[index], model.tokenizer) if request.logprobs else None,
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
                    opening = list(_role_chunks(chat))
                case PromptLogprobs(entries):
                    opening = list(_role_chunks(chat))
                    opening[0].prompt_logprobs.extend(
                        params.prompt_logprobs_of(entries, model.tokenizer)
                    )
                case ChoiceDelta():
                    chat.completion_tokens += len(delta.token_ids)
                    opening = list(_delta_chunks(chat, delta))
            for chunk in opening:
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
    info = model.info
    if request.HasField("top_logprobs") and not request.logprobs:
        raise invalid("top_logprobs", "top_logprobs needs logprobs to be true")
    asked = None
    for name in ("max_completion_tokens", "max_tokens"):
        if request.HasField(name):
            asked = getattr(request, name)
            break
    params.check_min_tokens(request.min_tokens, asked)
    sampling = params.sampling_of(request, info)
    stop = params.stop_strings(request)
    prompt = await model.chat_prompt(request)
    params.check_prompt(prompt, info, "messages")
    return _Chat(
        request,
        model,
        GenerationRequest(
            request_id=request.request_id or context.request_id,
            prompt_token_ids=prompt,
            sampling=sampling,
            n=request.n if request.HasField("n") else 1,
            max_tokens=params.clamp_max_tokens(asked, len(prompt), info),
            min_tokens=min(request.min_tokens, info.max_model_len - len(prompt)),
            stop=stop,
            stop_token_ids=tuple(request.stop_token_ids),
            include_stop=request.include_stop_str_in_output,
            ignore_eos=request.ignore_eos,
            skip_special_tokens=not request.HasField("skip_special_tokens")
            or request.skip_special_tokens,
            logprobs=request.top_logprobs if request.logprobs else None,
            prompt_logprobs=request.prompt_logprobs
            if request.HasField("prompt_logprobs")
            else None,
            priority=request.priority,
            tenant=context.tenant,
            cache_salt=request.cache_salt,
            traceparent=context.traceparent,
            timeout=params.seconds_left(context),
        ),
    )


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
        carry.logprobs.CopyFrom(_logprobs(delta.logprobs, chat.model.tokenizer))
    if delta.text:
        carry.delta.content = delta.text
        yield chat.chunk(carry)
        carry = pb.ChatChunkChoice(index=delta.choice, delta=pb.ChatDelta())
    if delta.finish_reason is not None:
        carry.finish_reason = params.FINISH_REASONS[delta.finish_reason]
        if (stop_reason := params.stop_reason_of(delta.stop_reason)) is not None:
            carry.stop_reason.CopyFrom(stop_reason)
        yield chat.chunk(carry)


def _logprobs(
    entries: list[Logprob] | tuple[Logprob, ...], tokenizer: Tokenizer
) -> pb.ChatLogprobs:
    return pb.ChatLogprobs(
        content=[
            pb.TokenLogprob(
                token=tokenizer.token_text(entry.token_id),
                logprob=params.finite(entry.logprob),
                bytes=_bytes(entry.token_id, tokenizer),
                top_logprobs=[
                    pb.TopLogprob(
                        token=tokenizer.token_text(token_id),
                        logprob=params.finite(logprob),
                        bytes=_bytes(token_id, tokenizer),
                    )
                    for token_id, logprob in entry.top
                ],
            )
            for entry in entries
        ]
    )


def _bytes(token_id: int, tokenizer: Tokenizer) -> bytes:
    # A control token is not part of the text, so that the bytes of all entries are the content's.
    return b"" if tokenizer.is_special(token_id) else tokenizer.token_bytes(token_id)
