"""What a step did to each request, in the order in which clients should hear of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_svc.batch import Embedding, PromptLogprobsPart, TokenLogprobs
    from engine_svc.scheduling.request import FinishReason


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request was scheduled for the first time."""

    key: int
    cached_tokens: int  # prompt tokens found in the prefix cache


@dataclass(frozen=True, slots=True)
class NewToken:
    """A request got a token. `position` counts its output, resumed tokens included, from 0."""

    key: int
    token_id: int
    position: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request reached its end. `stop_token_id` is set with FinishReason.STOP."""

    key: int
    reason: FinishReason
    stop_token_id: int | None


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request could not be computed."""

    key: int
    message: str


@dataclass(frozen=True, slots=True)
class Draft:
    """Guesses that one request had in a step, and how many of them, from the first, were right."""

    num_tokens: int
    num_accepted: int


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """The events of one step, to be told kind by kind, in this order."""

    admitted: tuple[AdmittedRequest, ...]
    preempted: tuple[int, ...]  # keys
    prompt_logprobs: tuple[PromptLogprobsPart, ...]  # contiguous over a request's life, no repeats
    tokens: tuple[NewToken, ...]  # several of a request follow each other
    finished: tuple[FinishedRequest, ...]
    failed: tuple[FailedRequest, ...]
    drafts: tuple[Draft, ...] = ()
    embeddings: tuple[Embedding, ...] = ()
