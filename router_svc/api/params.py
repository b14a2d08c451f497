"""What chat and completion requests have in common: sampling, limits, usage, log-probabilities."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.errors import ApiError, ErrorKind, invalid
from router_svc.generation_types import FinishReason, Logprob, Sampling

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router_svc.call_context import CallContext
    from router_svc.engine_channel import EngineInfo
    from router_svc.text.tokenizer import Tokenizer

GenerationMessage: TypeAlias = pb.CreateChatCompletionRequest | pb.CreateCompletionRequest

LOGPROB_FLOOR = -9999.0  # JSON has no -Infinity

FINISH_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}


def sampling_of(request: GenerationMessage, info: EngineInfo) -> Sampling:
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
    )


def stop_strings(request: GenerationMessage) -> tuple[str, ...]:
    """Stop strings. Raises ApiError for an empty one, which would stop everything at once."""
    for i, stop in enumerate(request.stop):
        if not stop:
            raise invalid(f"stop[{i}]", "a stop string must not be empty")
    return tuple(request.stop)


def check_prompt(prompt: Sequence[int], info: EngineInfo, param: str) -> None:
    """Raises ApiError unless the prompt has tokens of this model and leaves room for an answer."""
    if not prompt:
        raise invalid(param, "the prompt has no tokens")
    if len(prompt) >= info.max_model_len:
        raise invalid(
            param,
            f"the prompt has {len(prompt)} tokens, but this model's context holds"
            f" {info.max_model_len} tokens, prompt and answer together",
            "context_length_exceeded",
        )


def check_min_tokens(min_tokens: int, max_tokens: int | None) -> None:
    """Raises ApiError if an answer could never be long enough."""
    if max_tokens is not None and min_tokens > max_tokens:
        raise invalid("min_tokens", f"min_tokens ({min_tokens}) is above max_tokens ({max_tokens})")


def check_stream_options(request: GenerationMessage) -> None:
    """Raises ApiError if stream_options came without stream."""
    if request.HasField("stream_options"):
        raise invalid("stream_options", "stream_options is allowed with stream only")


def clamp_max_tokens(max_tokens: int | None, prompt_len: int, info: EngineInfo) -> int:
    """Most tokens the answer may have: what was asked for, cut to the rest of the context."""
    rest = info.max_model_len - prompt_len
    return rest if max_tokens is None else min(max_tokens, rest)


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


def prompt_logprobs_of(
    entries: Iterable[Logprob | None], tokenizer: Tokenizer
) -> list[pb.PromptLogprob]:
    """The public form of a prompt's log-probabilities; an empty entry where nothing predicts."""

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
            top=[token(token_id, lp, i + 1) for i, (token_id, lp) in enumerate(entry.top)],
        )
        for entry in entries
    ]
