"""Translates between the pipeline's own types and the engine contract's messages."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from octavo.engine.v1 import engine_pb2 as pb

from router_svc.engines.info import EngineInfo
from router_svc.errors import ApiError, from_grpc_status
from router_svc.generation_types import (
    Adapter,
    Constraint,
    EngineAdmitted,
    EngineDelta,
    EngineEvent,
    EngineFinish,
    EnginePromptLogprobs,
    FinishReason,
    GenerationRequest,
    Logprob,
    Sampling,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Messages that hold fields in the engine's contract alone, and a bad word's place among all runs.
_ENGINES_OWN = re.compile(r"^(sampling|stopping)\.|(?<=bad_words)\[.*")

_FINISH_REASONS = {
    pb.FINISH_REASON_STOP: FinishReason.STOP,
    pb.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    pb.FINISH_REASON_CANCELLED: FinishReason.CANCELLED,
}


def to_info(answer: pb.GetModelInfoResponse) -> EngineInfo:
    """What an engine says of itself."""
    return EngineInfo(
        served_names=tuple(answer.served_names),
        source=answer.source,
        max_model_len=answer.max_model_len,
        vocab_size=answer.vocab_size,
        max_num_seqs=answer.max_num_seqs,
        max_n=answer.max_n,
        max_logprobs=answer.max_logprobs,
        ready_unix_seconds=answer.ready_unix_seconds,
        # An engine that does nothing else generates, whether it says so or not.
        generates=answer.generates or not (answer.embedding_size or answer.num_labels),
        embedding_size=answer.embedding_size,
        num_labels=answer.num_labels,
        instance_id=answer.instance_id,
        tokenizer_sha256=answer.tokenizer_sha256,
        weights_version=answer.weights_version,
        block_size=answer.block_size,
        adapters={
            each.name: Adapter(each.name, each.version, each.rank, each.source)
            for each in answer.adapters
        },
    )


def to_generate_request(
    request: GenerationRequest, defaults: pb.SamplingParams
) -> pb.GenerateRequest:
    """The engine's request; absent sampling fields come from the model's defaults."""
    message = pb.GenerateRequest(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        sampling=_to_sampling(request.sampling, defaults),
        stopping=pb.StoppingParams(
            max_tokens=request.max_tokens,
            min_tokens=request.min_tokens,
            stop_token_ids=request.stop_token_ids,
            ignore_eos=request.ignore_eos,
        ),
        n=request.n,
        priority=request.priority,
        tenant=request.tenant,
        cache_salt=request.cache_salt,
        traceparent=request.traceparent,
    )
    if request.adapter is not None:
        message.lora = request.adapter.name
        message.expect.adapter_version = request.adapter.version
    if request.attempt:
        message.attempt = request.attempt
        for resumed in request.resume:
            message.resume.add(
                choice=resumed.choice,
                output_token_ids=resumed.token_ids,
                finished=resumed.finished,
            )
    if request.logprobs is not None:
        message.logprobs.top_k = request.logprobs
    if request.prompt_logprobs is not None:
        message.logprobs.prompt_top_k = request.prompt_logprobs
    if request.constraint is not None:
        message.constraint.CopyFrom(_to_constraint(request.constraint))
    if request.timeout is not None:
        message.timeout.FromNanoseconds(max(1, int(request.timeout * 1e9)))
    return message


def _to_constraint(constraint: Constraint) -> pb.Constraint:
    if constraint.kind == "choice":
        return pb.Constraint(choice=pb.ChoiceList(items=constraint.choices))
    message = pb.Constraint()
    setattr(message, constraint.kind, constraint.text)
    return message


def _to_sampling(sampling: Sampling, defaults: pb.SamplingParams) -> pb.SamplingParams:
    message = pb.SamplingParams()
    message.CopyFrom(defaults)
    message.MergeFrom(
        pb.SamplingParams(
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            frequency_penalty=sampling.frequency_penalty,
            presence_penalty=sampling.presence_penalty,
            logit_bias=sampling.logit_bias,
            seed=None if sampling.seed is None else sampling.seed % 2**64,
            allowed_token_ids=sampling.allowed_token_ids,
            bad_words=[pb.TokenSequence(token_ids=ids) for ids in sampling.bad_words],
        )
    )
    return message


def to_event(response: pb.GenerateResponse) -> EngineEvent | None:
    """The pipeline's event, or None for a notice, which changes nothing in the answer."""
    match response.WhichOneof("event"):
        case "delta":
            delta = response.delta
            return EngineDelta(
                delta.choice,
                delta.first_position,
                list(delta.token_ids),
                _logprobs(delta.logprobs, delta.token_ids) if delta.HasField("logprobs") else (),
            )
        case "finish":
            finish = response.finish
            return EngineFinish(
                finish.choice,
                _FINISH_REASONS[finish.reason],
                finish.stop_token_id if finish.HasField("stop_token_id") else None,
                finish.usage.completion_tokens,
            )
        case "admitted":
            return EngineAdmitted(response.admitted.cached_tokens, response.admitted.seed)
        case _:
            return None


def to_error(failure: pb.Failure) -> ApiError:
    """A request's failure, its field by the name that the public API has for it."""
    error = from_grpc_status(failure.code, failure.message, failure.status_details)
    if error.param is None:
        return error
    param = _ENGINES_OWN.sub("", error.param)
    message = error.message.replace(f"{error.param}: ", f"{param}: ", 1)
    return ApiError(
        error.kind, message, param=param, code=error.code, retry_after=error.retry_after
    )


def token_runs(runs: pb.TokenRuns) -> Iterator[tuple[int, int, int, list[int]]]:
    """Stream id, choice, first position and token ids of each run.

    Raises ValueError if the fields do not match.
    """
    token_ids = list(runs.token_ids)
    end = 0
    for stream_id, choice, first_position, num_tokens in zip(
        runs.stream_ids, runs.choices, runs.first_positions, runs.num_tokens, strict=True
    ):
        start, end = end, end + num_tokens
        yield stream_id, choice, first_position, token_ids[start:end]
    if end != len(token_ids):
        raise ValueError(f"token runs have {end} tokens, but {len(token_ids)} came")


def to_prompt_logprobs(part: pb.PromptLogprobs, prompt: tuple[int, ...]) -> EnginePromptLogprobs:
    """Entries of a run of prompt positions; the block itself does not repeat the prompt's ids."""
    first = part.first_position
    ids = prompt[first : first + len(part.logprobs.token_logprobs)]
    return EnginePromptLogprobs(
        [None if math.isnan(entry.logprob) else entry for entry in _entries(part.logprobs, ids)],
        first,
    )


def _logprobs(block: pb.LogprobBlock, token_ids: object) -> list[Logprob]:
    return list(_entries(block, token_ids))


def _entries(block: pb.LogprobBlock, token_ids: object) -> Iterator[Logprob]:
    k = block.top_k
    tops = list(zip(block.top_token_ids, block.top_logprobs, strict=True))
    for i, (token_id, logprob, rank) in enumerate(
        zip(token_ids, block.token_logprobs, block.token_ranks, strict=True)  # type: ignore[call-overload]
    ):
        yield Logprob(token_id, logprob, rank, tuple(tops[i * k : (i + 1) * k]))
