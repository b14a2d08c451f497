"""From a client's message to embed or score to its inputs, with every value checked on the way.

A model that generates embeds as well: an input's vector is the hidden state of its last token. Its
inputs run like prompts, in the same steps, and sample nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.rpc.code_pb2 import Code
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.encoding.call import EncoderInput
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.request import Request
from engine_svc.service.errors import RequestError, invalid, mismatch
from engine_svc.service.request_story import RequestStory

if TYPE_CHECKING:
    from engine_svc.service.metrics import EngineMetrics
    from engine_svc.service.submission import RequestLimits

MAX_INPUTS = 2048  # of one call, as OpenAI has it
_MAX_NAME = 512  # characters of ids and names


@dataclass(frozen=True, slots=True)
class EmbedLimits:
    """What the loaded model and the configuration allow, and what a caller may `expect`."""

    task: pb.EmbedTask.ValueType  # the one that the model was made for
    max_model_len: int
    vocab_size: int
    has_segments: bool
    accepts_priority: bool
    tokenizer_sha256: str
    weights_version: str


def embed_limits(limits: RequestLimits) -> EmbedLimits:
    """What a model that generates embeds: whole contexts."""
    return EmbedLimits(
        task=pb.EMBED_TASK_EMBEDDING,
        max_model_len=limits.max_model_len,
        vocab_size=limits.vocab_size,
        has_segments=False,
        accepts_priority=limits.accepts_priority,
        tokenizer_sha256=limits.tokenizer_sha256,
        weights_version=limits.weights_version,
    )


class EmbedAdmission:
    """Checks calls, and counts those that it refuses."""

    def __init__(self, limits: EmbedLimits, metrics: EngineMetrics) -> None:
        self._limits = limits
        self._metrics = metrics

    def check(self, request: pb.EmbedRequest) -> tuple[EncoderInput, ...]:
        """The inputs of a call. Raises RequestError as `parse_embed` does."""
        try:
            return parse_embed(request, self._limits)
        except RequestError as error:
            is_invalid = error.status.code == Code.INVALID_ARGUMENT
            self._metrics.on_rejected("invalid" if is_invalid else "expectation")
            raise


@dataclass(frozen=True, slots=True)
class EmbedSubmission:
    """Checked inputs for a model that generates; each runs like a choice of its own."""

    request_id: str
    inputs: tuple[EncoderInput, ...]
    priority: int
    tenant: str
    traceparent: str = ""
    timeout: float | None = None  # the call's own deadline is all there is
    adapter: None = None  # it is the model itself that embeds
    sampling: SamplingParams = field(default_factory=lambda: SamplingParams(max_tokens=0))

    @property
    def choices(self) -> range:
        """The inputs' numbers."""
        return range(len(self.inputs))

    def story(self, arrival: float) -> RequestStory:
        """What its spans begin with."""
        return RequestStory(
            "embeddings",
            self.request_id,
            self.traceparent,
            arrival,
            num_prompt_tokens=sum(len(item.token_ids) for item in self.inputs),
        )

    def requests(
        self, first_key: int, *, arrival: float, deadline: float | None, group: object
    ) -> tuple[Request, ...]:
        """The scheduler's requests, with keys from `first_key` on."""
        return tuple(
            Request(
                key=first_key + number,
                request_id=self.request_id,
                choice=number,
                prompt_token_ids=item.token_ids,
                sampling=self.sampling,
                arrival=arrival,
                priority=self.priority,
                tenant=self.tenant,
                deadline=deadline,
                embeds=True,
                group=group,
            )
            for number, item in enumerate(self.inputs)
        )


def parse_embed(request: pb.EmbedRequest, limits: EmbedLimits) -> tuple[EncoderInput, ...]:
    """Checks a request.

    Raises RequestError: INVALID_ARGUMENT, or FAILED_PRECONDITION where `expect` does not hold.
    """
    for name in ("tokenizer_sha256", "weights_version"):
        wanted, actual = getattr(request.expect, name), getattr(limits, name)
        if wanted and wanted != actual:
            raise mismatch(f"expect.{name}", wanted, actual)
    if request.expect.adapter_version:  # it is the model itself that embeds
        raise mismatch("expect.adapter_version", request.expect.adapter_version, "")
    for name in ("request_id", "tenant", "traceparent"):
        if len(getattr(request, name)) > _MAX_NAME:
            raise invalid(name, f"must have at most {_MAX_NAME} characters")
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


def _parse_input(path: str, item: pb.EmbedInput, limits: EmbedLimits) -> EncoderInput:
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
