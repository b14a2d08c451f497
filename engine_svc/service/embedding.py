"""From a client's message to the inputs of an encoder, with every value checked on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.encoding.call import EncoderInput
from engine_svc.service.errors import invalid, mismatch

if TYPE_CHECKING:
    from engine_svc.service.errors import RequestError

MAX_INPUTS = 2048  # of one call, as OpenAI has it
_MAX_NAME = 512  # characters of ids and names


@dataclass(frozen=True, slots=True)
class EncoderLimits:
    """What the loaded encoder and the configuration allow, and what a caller may `expect`."""

    task: pb.EmbedTask.ValueType  # the one that the model was made for
    max_model_len: int
    vocab_size: int
    has_segments: bool
    accepts_priority: bool
    tokenizer_sha256: str
    weights_version: str


def parse_embed(request: pb.EmbedRequest, limits: EncoderLimits) -> tuple[EncoderInput, ...]:
    """Checks a request.

    Raises RequestError: INVALID_ARGUMENT, or FAILED_PRECONDITION where `expect` does not hold.
    """
    for field in ("tokenizer_sha256", "weights_version"):
        wanted, actual = getattr(request.expect, field), getattr(limits, field)
        if wanted and wanted != actual:
            raise mismatch(f"expect.{field}", wanted, actual)
    for field in ("request_id", "tenant", "traceparent"):
        if len(getattr(request, field)) > _MAX_NAME:
            raise invalid(field, f"must have at most {_MAX_NAME} characters")
    if request.priority and not limits.accepts_priority:
        raise invalid("priority", "the engine schedules by arrival (--scheduling-policy fcfs)")
    if request.task != limits.task:
        raise _wrong_task(request.task, limits.task)
    if not 1 <= len(request.inputs) <= MAX_INPUTS:
        raise invalid("inputs", f"must be from 1 to {MAX_INPUTS}, not {len(request.inputs)}")
    return tuple(
        _parse_input(f"inputs[{index}]", item, limits) for index, item in enumerate(request.inputs)
    )


def _wrong_task(asked: int, made_for: pb.EmbedTask.ValueType) -> RequestError:
    if asked not in (pb.EMBED_TASK_EMBEDDING, pb.EMBED_TASK_SCORE):
        return invalid("task", "must be EMBED_TASK_EMBEDDING or EMBED_TASK_SCORE")
    if made_for == pb.EMBED_TASK_SCORE:
        return invalid("task", "the loaded model is a classifier: it scores, it does not embed")
    return invalid("task", "the loaded model has no classifier: it embeds, it does not score")


def _parse_input(path: str, item: pb.EmbedInput, limits: EncoderLimits) -> EncoderInput:
    token_ids = tuple(item.token_ids)
    if not token_ids:
        raise invalid(f"{path}.token_ids", "must not be empty")
    if len(token_ids) > limits.max_model_len:
        raise invalid(
            f"{path}.token_ids",
            f"has {len(token_ids)} tokens, the model takes at most {limits.max_model_len}",
        )
    if max(token_ids) >= limits.vocab_size:
        index = next(i for i, token in enumerate(token_ids) if token >= limits.vocab_size)
        raise invalid(
            f"{path}.token_ids[{index}]",
            f"token id {token_ids[index]} is not below the vocabulary's size {limits.vocab_size}",
        )
    if item.first_segment_tokens > len(token_ids):
        raise invalid(
            f"{path}.first_segment_tokens",
            f"{item.first_segment_tokens} is above the {len(token_ids)} tokens of the input",
        )
    one_segment = not item.first_segment_tokens or not limits.has_segments
    return EncoderInput(token_ids, len(token_ids) if one_segment else item.first_segment_tokens)
