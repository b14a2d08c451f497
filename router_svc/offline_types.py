"""What goes into the offline API and comes out of it, with vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.generation_types import Sampling
from router_svc.structured import constraint_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router_svc.generation_types import Constraint, Logprob
    from router_svc.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class StructuredOutputsParams:
    """A form that outputs must have: exactly one of these."""

    json: str | Mapping[str, Any] | None = None  # a JSON schema
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None  # in Lark's notation or in GBNF
    json_object: bool | None = None
    structural_tag: str | Mapping[str, Any] | None = None

    def constraint(self) -> Constraint | None:
        """The grammar. Raises ApiError for one that cannot be enforced."""
        wanted = pb.StructuredOutputs(
            json=_json_text(self.json),
            regex=self.regex,
            choice=self.choice,
            grammar=self.grammar,
            json_object=self.json_object,
            structural_tag=_json_text(self.structural_tag),
        )
        return constraint_of(pb.CreateCompletionRequest(structured_outputs=wanted))


def _json_text(value: str | Mapping[str, Any] | None) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample; None leaves it to the model's generation_config."""

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = 16  # None is the rest of the context
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: Sequence[int] = ()  # empty is all
    bad_words: Sequence[str] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    truncate_prompt_tokens: int | None = None  # keeps the last ones; -1 is as many as fit
    structured_outputs: StructuredOutputsParams | None = None

    def sampling(self, tokenizer: Tokenizer) -> Sampling:
        """The pipeline's own form. Raises ValueError for an empty bad word."""
        return Sampling(
            temperature=self.temperature,
            top_k=None if self.top_k is None else max(0, self.top_k),
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            logit_bias=dict(self.logit_bias),
            seed=self.seed,
            allowed_token_ids=tuple(self.allowed_token_ids),
            bad_words=tokenizer.word_runs(self.bad_words),
        )


@dataclass(slots=True)
class CompletionOutput:
    """One of a prompt's n continuations."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)  # empty unless asked for
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class RequestOutput:
    """A prompt and its continuations."""

    request_id: str
    prompt: str | None  # None for a prompt given as token ids
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0
    prompt_logprobs: list[Logprob | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """A vector."""

    embedding: list[float]


@dataclass(frozen=True, slots=True)
class EmbeddingRequestOutput:
    """An input's vector, where `generate` would have its continuations."""

    request_id: str
    outputs: EmbeddingOutput
