"""The way of texts through an encoder: tokens on the text threads, vectors from the engine.

texts ─► EncoderInputs, all checked ─► batches, one RPC each ─► vectors, in the inputs' order
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from octavo.inference.v1 import embeddings_pb2 as pb

from router_svc.api import params
from router_svc.engines.encoder_types import EncoderInput, EncoderRequest, EncoderTask
from router_svc.errors import invalid
from router_svc.text.encoder_inputs import TooShortError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from router_svc.call_context import CallContext
    from router_svc.served_model import ServedModel

EncoderMessage: TypeAlias = pb.CreateEmbeddingsRequest | pb.RerankRequest | pb.ScoreRequest

_TEXTS_A_JOB = 64  # so that a long batch leaves the text threads to others now and then
_MAX_BATCH_INPUTS = 256
_MAX_BATCH_TOKENS = 262_144


class Source(NamedTuple):
    """Where an input comes from: its field, for errors, and how it is made, on a text thread."""

    param: str
    make: Callable[[], EncoderInput]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vectors in the order of their sources, and the tokens that went into all of them."""

    vectors: list[Sequence[float]]
    num_tokens: int

    @property
    def usage(self) -> pb.EmbeddingUsage:
        """The public usage message."""
        return pb.EmbeddingUsage(prompt_tokens=self.num_tokens, total_tokens=self.num_tokens)


async def encode(
    request: EncoderMessage,
    model: ServedModel,
    context: CallContext,
    task: EncoderTask,
    sources: Sequence[Source],
) -> Encoded:
    """A vector for each source. Raises ApiError, naming the field, before any is computed."""
    inputs: list[EncoderInput] = []
    context.call.model = model.name
    with context.call.phase("tokenise"):
        for start in range(0, len(sources), _TEXTS_A_JOB):
            job = sources[start : start + _TEXTS_A_JOB]
            inputs += await model.run(partial(_made, job, model))
    context.call.input_tokens = _num_tokens(inputs)
    context.permit.reserve(_num_tokens(inputs))
    vectors: list[Sequence[float]] = []
    try:
        for batch in _batches(inputs):
            call = EncoderRequest(
                task=task,
                request_id=context.request_id,
                priority=request.priority,
                tenant=context.tenant,
                traceparent=context.traceparent,
                timeout=params.seconds_left(context),
                call=context.call,
            )
            vectors += await model.engine.embed(call, batch)
    finally:
        context.permit.settle(_num_tokens(inputs[: len(vectors)]))
    return Encoded(vectors, _num_tokens(inputs))


def _num_tokens(inputs: Sequence[EncoderInput]) -> int:
    return sum(len(one.token_ids) for one in inputs)


def _made(sources: Sequence[Source], model: ServedModel) -> list[EncoderInput]:
    limit = model.info.max_model_len
    inputs = []
    for param, make in sources:
        try:
            made = make()
        except TooShortError as error:
            raise invalid("truncate_prompt_tokens", str(error)) from error
        num_tokens = len(made.token_ids)
        if not num_tokens:
            raise invalid(param, "the input has no tokens")
        if num_tokens > limit:
            raise invalid(
                param,
                f"the input has {num_tokens} tokens, but this model takes at most {limit};"
                " truncate_prompt_tokens cuts it",
                "context_length_exceeded",
            )
        inputs.append(made)
    return inputs


def _batches(inputs: Sequence[EncoderInput]) -> Iterator[list[EncoderInput]]:
    batch: list[EncoderInput] = []
    num_tokens = 0
    for one in inputs:
        full = len(batch) == _MAX_BATCH_INPUTS
        if batch and (full or num_tokens + len(one.token_ids) > _MAX_BATCH_TOKENS):
            yield batch
            batch, num_tokens = [], 0
        batch.append(one)
        num_tokens += len(one.token_ids)
    if batch:
        yield batch
