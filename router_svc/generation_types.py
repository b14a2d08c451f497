"""What travels through the pipeline: requests, the engine's events, deltas of text; no protos."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from router_svc.tracing.call import Call


class FinishReason(Enum):
    """Why a choice ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TOOL_CALLS = "tool_calls"  # the router's own: STOP after calls of tools


ConstraintKind: TypeAlias = Literal["json_schema", "regex", "choice", "ebnf", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar that an answer must follow: `text` in the kind's notation, or the `choices`."""

    kind: ConstraintKind
    text: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to pick tokens; None leaves it to the model's generation_config, then to neutral."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    allowed_token_ids: tuple[int, ...] = ()  # empty is all
    bad_words: tuple[tuple[int, ...], ...] = ()  # runs of tokens that never occur


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter as engines have it. Of one name, another version is another adapter."""

    name: str
    version: str
    rank: int = field(default=0, compare=False)
    source: str = field(default="", compare=False)  # where an engine has it from


@dataclass(frozen=True, slots=True)
class ResumedChoice:
    """What earlier attempts produced of one choice, and whether it has ended."""

    choice: int
    token_ids: tuple[int, ...]
    finished: bool


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue n times."""

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling: Sampling
    n: int = 1
    max_tokens: int | None = None  # None is the rest of the context
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False  # whether a stop string is part of the text
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    shown_special_ids: frozenset[int] = frozenset()  # special tokens that have text all the same
    logprobs: int | None = None  # top entries per output position
    prompt_logprobs: int | None = None  # top entries per prompt position
    priority: int = 0
    tenant: str = ""
    cache_salt: str = ""
    traceparent: str = ""
    timeout: float | None = None  # seconds
    constraint: Constraint | None = None
    adapter: Adapter | None = None  # to be applied
    attempt: int = 0
    resume: tuple[ResumedChoice, ...] = ()
    call: Call | None = field(default=None, repr=False, compare=False)  # of which it is a part


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log-probability of one token, its rank, and the likeliest tokens at its position."""

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]  # (token id, logprob), likeliest first


@dataclass(frozen=True, slots=True)
class EngineAdmitted:
    """The engine began to compute the request."""

    cached_tokens: int
    seed: int = 0  # in use, given or made up


class EngineDelta(NamedTuple):  # one for each token: a tuple is made in a third of the time
    """New tokens of one choice; first_position counts output tokens from 0."""

    choice: int
    first_position: int
    token_ids: Sequence[int]
    logprobs: Sequence[Logprob]


@dataclass(frozen=True, slots=True)
class EnginePromptLogprobs:
    """Log-probabilities of prompt positions, in order; None for the first token of a prompt."""

    entries: Sequence[Logprob | None]
    first_position: int = 0


@dataclass(frozen=True, slots=True)
class EngineFinish:
    """One choice ended."""

    choice: int
    reason: FinishReason
    stop_token_id: int | None
    completion_tokens: int


EngineEvent = EngineAdmitted | EngineDelta | EnginePromptLogprobs | EngineFinish


class EngineStream(Protocol):
    """The events of one request on an engine."""

    def __aiter__(self) -> AsyncIterator[EngineEvent]: ...

    def cancel(self, choice: int | None = None) -> None:
        """Aborts one choice, or the whole request. Aborting what has ended does nothing."""
        ...


class EngineClient(Protocol):
    """What the pipeline needs of an engine."""

    def submit(self, request: GenerationRequest) -> EngineStream:
        """Starts a request. Errors, of the arguments too, are raised by the stream."""
        ...


@dataclass(frozen=True, slots=True)
class Started:
    """The request runs; nothing of its answer is known yet."""

    cached_tokens: int


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """All of the prompt's log-probabilities; None for its first token."""

    entries: tuple[Logprob | None, ...]


class ChoiceDelta(NamedTuple):
    """What is new in one choice.

    `token_ids` (and `logprobs`, if asked for) are those whose text this delta completes; the last
    delta of a choice carries all that are left, so that over a choice they are all its tokens.
    `offsets` say where each token's text begins in the choice's text, in code points.
    `finish_reason` is set in the last delta only, `stop_reason` if a stop string or token ended it.
    """

    choice: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[Logprob, ...]
    offsets: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


Delta = Started | PromptLogprobs | ChoiceDelta


class EngineProtocolError(Exception):
    """The engine's events do not fit together: a gap, a repeat, or an end without a finish."""
