"""What chat and completion requests have in common: sampling, limits, usage, log-probabilities."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from octavo.inference.v1 import embeddings_pb2, responses_pb2
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.generation_types import FinishReason, GenerationRequest, Logprob, Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from router_svc.call_context import CallContext
    from router_svc.engines.info import EngineInfo
    from router_svc.served_model import ServedModel
    from router_svc.text.tokenizer import Tokenizer

GenerationMessage: TypeAlias = pb.CreateChatCompletionRequest | pb.CreateCompletionRequest
Truncatable: TypeAlias = (
    GenerationMessage
    | embeddings_pb2.CreateEmbeddingsRequest
    | embeddings_pb2.RerankRequest
    | embeddings_pb2.ScoreRequest
)

LOGPROB_FLOOR = -9999.0  # JSON has no -Infinity

FINISH_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.TOOL_CALLS: pb.FINISH_REASON_TOOL_CALLS,
}

_REQUEST_ID = re.compile(r"[!-~]{1,128}")


def generation_of(
    request: GenerationMessage,
    model: ServedModel,
    context: CallContext,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> GenerationRequest:
    """What to generate, but for what `with_bad_words` and `with_prompt` add.

    Raises ApiError, naming the field, for whatever the engine would refuse.
    """
    info = model.info
    if not info.generates:
        raise invalid("model", f"the model {model.name} reads texts, it does not generate any")
    context.call.model = model.name
    is_chat = isinstance(request, pb.CreateChatCompletionRequest)
    top_field = "top_logprobs" if is_chat else "logprobs"
    if max_tokens is not None and request.min_tokens > max_tokens:
        raise invalid(
            "min_tokens", f"min_tokens ({request.min_tokens}) is above max_tokens ({max_tokens})"
        )
    model.check_token_ids(request.stop_token_ids, "stop_token_ids")
    model.check_token_ids(request.allowed_token_ids, "allowed_token_ids")
    return GenerationRequest(
        request_id=_request_id(request, context),
        prompt_token_ids=(),
        sampling=_sampling_of(request, info),
        n=request.n if request.HasField("n") else 1,
        max_tokens=max_tokens,
        min_tokens=request.min_tokens,
        stop=_stop_strings(request),
        stop_token_ids=tuple(request.stop_token_ids),
        include_stop=request.include_stop_str_in_output,
        ignore_eos=request.ignore_eos,
        skip_special_tokens=request.skip_special_tokens
        or not request.HasField("skip_special_tokens"),
        logprobs=_within(top_field, logprobs, info),
        prompt_logprobs=_within("prompt_logprobs", prompt_logprobs, info),
        priority=request.priority,
        tenant=context.tenant,
        cache_salt=context.salt(request.cache_salt),
        traceparent=context.traceparent,
        timeout=seconds_left(context),
        adapter=model.adapter,
        call=context.call,
    )


async def with_bad_words(
    generation: GenerationRequest, request: GenerationMessage, model: ServedModel
) -> GenerationRequest:
    """The generation with the request's bad words as tokens, each alone and after a space.

    Raises ApiError for a word without a character that can be seen.
    """
    if not request.bad_words:
        return generation
    for i, word in enumerate(request.bad_words):
        if not word.strip():
            raise invalid(f"bad_words[{i}]", "a bad word must not be empty")

    runs = await model.run(lambda: model.tokenizer.word_runs(request.bad_words))
    return replace(generation, sampling=replace(generation.sampling, bad_words=runs))


def tokens_kept(request: Truncatable, info: EngineInfo, *, room: int = 0) -> int | None:
    """How many of a prompt's tokens truncate_prompt_tokens keeps; None is all of them.

    -1 leaves `room` for an answer. Raises ApiError for 0 and for more than the context holds.
    """
    if not request.HasField("truncate_prompt_tokens"):
        return None
    kept = request.truncate_prompt_tokens
    if kept == -1:
        return max(1, info.max_model_len - room)
    if kept == 0:
        raise invalid("truncate_prompt_tokens", "must be -1 or above 0, not 0")
    if kept > info.max_model_len:
        raise invalid(
            "truncate_prompt_tokens",
            f"must be at most this model's context of {info.max_model_len} tokens, not {kept}",
        )
    return kept


def with_prompt(
    generation: GenerationRequest, prompt: Sequence[int], info: EngineInfo, param: str
) -> GenerationRequest:
    """The generation for a prompt, its length cut to the rest of the context.

    Raises ApiError unless the prompt has tokens and leaves room for an answer.
    """
    if not prompt:
        raise invalid(param, "the prompt has no tokens")
    rest = info.max_model_len - len(prompt)
    if rest < 1:
        raise invalid(
            param,
            f"the prompt has {len(prompt)} tokens, but this model's context holds"
            f" {info.max_model_len} tokens, prompt and answer together",
            "context_length_exceeded",
        )
    return replace(
        generation,
        prompt_token_ids=prompt,
        max_tokens=rest if generation.max_tokens is None else min(generation.max_tokens, rest),
        min_tokens=min(generation.min_tokens, rest),
    )


def admitted(
    generations: Sequence[GenerationRequest], context: CallContext, param: str
) -> list[GenerationRequest]:
    """The generations of a call, their tokens set aside, with the time that is left for them.

    `param` is the field that bounds the answers, if there is one. Raises ApiError if the tenant's
    limit or the deadline says no.
    """
    timeout = seconds_left(context)
    context.permit.reserve(
        sum(len(each.prompt_token_ids) for each in generations),
        sum(each.n * (each.max_tokens or 0) for each in generations),
        param=param,
    )
    return [replace(each, timeout=timeout) for each in generations]


def _sampling_of(request: GenerationMessage, info: EngineInfo) -> Sampling:
    """Sampling parameters; absent ones stay None. Raises ApiError for a bias on no token."""
    for token_id in request.logit_bias:
        if token_id >= info.vocab_size:
            raise invalid(
                f"logit_bias.{token_id}",
                f"token id {token_id} is outside the vocabulary of {info.vocab_size} tokens",
            )

    def optional(name: str) -> float | None:
        return getattr(request, name) if request.HasField(name) else None  # type: ignore[arg-type]

    top_k = optional("top_k")
    return Sampling(
        temperature=optional("temperature"),
        top_k=None if top_k is None else max(0, int(top_k)),  # -1 is vLLM's "all", 0 is ours
        top_p=optional("top_p"),
        min_p=optional("min_p"),
        repetition_penalty=optional("repetition_penalty"),
        frequency_penalty=optional("frequency_penalty"),
        presence_penalty=optional("presence_penalty"),
        logit_bias=dict(request.logit_bias),
        seed=request.seed if request.HasField("seed") else None,
        allowed_token_ids=tuple(request.allowed_token_ids),
    )


def _stop_strings(request: GenerationMessage) -> tuple[str, ...]:
    """Stop strings. Raises ApiError for an empty one, which would stop everything at once."""
    for i, stop in enumerate(request.stop):
        if not stop:
            raise invalid(f"stop[{i}]", "a stop string must not be empty")
    return tuple(request.stop)


def _request_id(request: GenerationMessage, context: CallContext) -> str:
    if request.request_id and not _REQUEST_ID.fullmatch(request.request_id):
        # It is written to logs, where a line break would forge a line.
        raise invalid("request_id", "must have printable ASCII characters only, and no spaces")
    return request.request_id or context.request_id


def _within(field: str, value: int | None, info: EngineInfo) -> int | None:
    limit = min(info.max_logprobs, info.vocab_size)
    if value is not None and value > limit:
        raise invalid(field, f"{value} likeliest tokens are asked for, at most {limit} are served")
    return value


def check_stream_options(
    request: GenerationMessage | responses_pb2.CreateResponseRequest,
) -> None:
    """Raises ApiError if stream_options came without stream."""
    if request.HasField("stream_options"):
        raise invalid("stream_options", "stream_options is allowed with stream only")


def seconds_left(context: CallContext) -> float | None:
    """Seconds until the call's deadline; None without one. Raises ApiError when it has passed."""
    if context.deadline is None:
        return None
    left = context.deadline - time.monotonic()
    if left <= 0:
        raise ApiError(
            ErrorKind.DEADLINE_EXCEEDED, "the deadline passed before the request was sent on"
        )
    return left


def usage_of(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> pb.Usage:
    """The public usage message."""
    return pb.Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=pb.PromptTokensDetails(cached_tokens=cached_tokens),
    )


def stop_reason_of(stop_reason: str | int | None) -> pb.StopReason | None:
    """The public stop_reason: a stop string, a stop token's id, or nothing."""
    if stop_reason is None:
        return None
    if isinstance(stop_reason, str):
        return pb.StopReason(text=stop_reason)
    return pb.StopReason(token_id=stop_reason)


def finite(logprob: float) -> float:
    """A log-probability that JSON can carry: -inf becomes LOGPROB_FLOOR."""
    return max(logprob, LOGPROB_FLOOR)


def token_names(request: GenerationMessage, tokenizer: Tokenizer) -> Callable[[int], str]:
    """How log-probabilities show a token: as its text, or as "token_id:…" if asked for."""
    return "token_id:{}".format if request.return_tokens_as_token_ids else tokenizer.token_text


def prompt_logprobs_of(
    entries: Iterable[Logprob | None], tokenizer: Tokenizer, *, most: int
) -> list[pb.PromptLogprob]:
    """A prompt's log-probabilities, with at most so many likeliest tokens at each position.

    An entry is empty where nothing predicts the token.
    """

    def token(token_id: int, logprob: float, rank: int) -> pb.PromptTokenLogprob:
        text = tokenizer.token_text(token_id)
        return pb.PromptTokenLogprob(
            token_id=token_id, token=text, logprob=finite(logprob), rank=rank
        )

    return [
        pb.PromptLogprob()
        if entry is None
        else pb.PromptLogprob(
            token=token(entry.token_id, entry.logprob, entry.rank),
            top=[token(token_id, lp, i + 1) for i, (token_id, lp) in enumerate(entry.top[:most])],
        )
        for entry in entries
    ]
