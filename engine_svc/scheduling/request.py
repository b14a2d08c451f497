"""One choice of one client's request, as the engine knows it while it lives.

    tokens      [ prompt …………………………… | output, resumed ones first ……… ]
    computed    [ ########################…… ]      num_computed_tokens: their KV is in blocks
    to compute                            [ …………… ]  num_uncomputed_tokens

There are no phases: a step gives a request some of its uncomputed tokens, and where a step reaches
the last known token the next one is sampled. A decoding request has exactly one uncomputed token,
and with it a step may compute guesses at the next ones, which are known only once they proved
right; a preempted request has all of its tokens to compute again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from engine_svc.sampling_params import SamplingParams

Stage: TypeAlias = Literal["queue", "prefill", "decode"]


class FinishReason(Enum):
    """Why a request left the scheduler."""

    STOP = auto()  # an end or stop token, which is the last of the output, or the grammar's end
    LENGTH = auto()  # max_tokens, or the context's end
    CANCELLED = auto()
    EXPIRED = auto()  # its deadline passed
    FAILED = auto()  # the worker could not compute it


class RequestStatus(Enum):
    """Where a request is."""

    WAITING = auto()  # holds no blocks
    RUNNING = auto()  # holds blocks; the worker knows it
    FINISHED = auto()  # gone


@dataclass(slots=True, eq=False)
class Request:
    """A choice from its arrival to its finish. Only the scheduler and the KV manager change it.

    Times are in seconds of the scheduler's clock (monotonic).
    """

    key: int  # unique among all requests the engine ever ran
    request_id: str
    choice: int
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    arrival: float
    output_token_ids: list[int] = field(default_factory=list)  # starts with resumed tokens
    priority: int = 0  # lower is served first
    tenant: str = ""
    cache_salt: str = ""
    lora: str = ""  # version of its adapter, not its name: what KV depends on
    adapter_slot: int = -1  # where the decoder has it; -1 is none
    deadline: float | None = None
    embeds: bool = False  # its last token's hidden state is wanted, and no output
    group: object = None  # the same object for all choices of one logical request
    grammar_ended: bool = False  # nothing may follow the output, whatever min_tokens asks for

    num_resumed: int = field(init=False)
    num_computed_tokens: int = field(default=0, init=False)
    # While a step is planned before the results of the one in flight are known: what that one
    # computes of this request, and the tokens that will follow; else 0. See steps_in_flight.
    num_in_flight_tokens: int = field(default=0, init=False)
    num_awaited_tokens: int = field(default=0, init=False)
    num_cached_tokens: int = field(default=0, init=False)  # of the prompt, when first scheduled
    num_preemptions: int = field(default=0, init=False)
    stopped_before: tuple[float, ...] = field(default=(), init=False)  # see QueueWaits
    waited_for: str | None = field(default=None, init=False)  # a WaitReason, once it has waited
    first_scheduled_at: float | None = field(default=None, init=False)
    first_token_at: float | None = field(default=None, init=False)  # of this attempt
    finished_at: float | None = field(default=None, init=False)
    status: RequestStatus = field(default=RequestStatus.WAITING, init=False)
    finish_reason: FinishReason | None = field(default=None, init=False)
    serial: int = field(default=-1, init=False)  # order of arrival, given by the scheduler
    scores_only: bool = field(default=False, init=False)  # computes its prompt, samples nothing
    next_prompt_logprob: int = field(init=False)  # first prompt position still to be reported
    block_hashes: list[bytes] = field(default_factory=list, init=False)  # see KVCacheManager

    def __post_init__(self) -> None:
        """Derives what follows from the arguments."""
        self.num_resumed = len(self.output_token_ids)
        self.next_prompt_logprob = self.sampling.prompt_logprobs_from

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: prompt and output."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        """Known tokens whose KV is still to be computed."""
        return self.num_tokens - self.num_computed_tokens

    @property
    def num_unplanned_tokens(self) -> int:
        """Tokens that the next step may compute: uncomputed ones, as the step in flight leaves
        them."""
        known = len(self.prompt_token_ids) + len(self.output_token_ids)
        planned = self.num_computed_tokens + self.num_in_flight_tokens
        return known + self.num_awaited_tokens - planned

    @property
    def plain(self) -> bool:
        """Whether the next tokens follow from logits alone, and those need not be told."""
        sampling = self.sampling
        return (
            sampling.logprobs is None
            and not sampling.allowed_token_ids
            and not sampling.bad_words
            and not sampling.logit_bias
            and sampling.repetition_penalty == 1.0
            and sampling.frequency_penalty == 0.0
            and sampling.presence_penalty == 0.0
            and (
                not sampling.masked_until_min_tokens
                or len(self.output_token_ids) >= sampling.min_tokens
            )
        )

    def num_tokens_left(self, max_model_len: int) -> int:
        """Tokens that the output may still get."""
        left = self.sampling.max_tokens - len(self.output_token_ids)
        return min(left, max_model_len - self.num_tokens)

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether log-probabilities of prompt positions are still to be reported.

        An earlier attempt with output has reported them all: they come before the first token.
        """
        return (
            self.sampling.prompt_logprobs is not None
            and not self.num_resumed
            and self.next_prompt_logprob < self.num_prompt_tokens
        )

    @property
    def stage(self) -> Stage:
        """How far the request came; names where a deadline struck."""
        if self.first_scheduled_at is None:
            return "queue"
        return "prefill" if self.first_token_at is None else "decode"

    def tokens(self, start: int, stop: int) -> tuple[int, ...]:
        """Known tokens at positions [start, stop), 0 <= start <= stop <= num_tokens."""
        num_prompt = len(self.prompt_token_ids)
        if stop <= num_prompt:
            return self.prompt_token_ids[start:stop]
        output = self.output_token_ids[max(start - num_prompt, 0) : stop - num_prompt]
        return (*self.prompt_token_ids[start:], *output)

    def reached_limit(self, max_model_len: int) -> tuple[FinishReason, int | None] | None:
        """Why the output may not grow, with the stop token that ended it; None if it may."""
        output, sampling = self.output_token_ids, self.sampling
        if output and (self.grammar_ended or len(output) >= sampling.min_tokens):
            last = output[-1]
            if last in sampling.eos_token_ids or last in sampling.stop_token_ids:
                return FinishReason.STOP, last
        if self.grammar_ended or self.embeds:
            return FinishReason.STOP, None
        if self.num_tokens_left(max_model_len) <= 0:
            return FinishReason.LENGTH, None
        return None
