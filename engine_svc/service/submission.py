"""From a client's message to what the scheduler takes, with every value checked on the way.

Whatever is refused names its field by the path in the message, and both numbers where a limit is
hit. Nothing here clamps silently but `max_tokens`, which ends where the context ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine_svc.constraints.constraint import Constraint
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.request import Request
from engine_svc.service.errors import invalid, mismatch
from engine_svc.service.request_story import RequestStory, valid_traceparent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from octavo.engine.v1 import engine_pb2 as pb

    from engine_svc.adapters.served import ServedAdapter


MAX_CHOICES = 128
_MAX_LOGIT_BIASES = 1024
_MAX_STOP_TOKENS = 1024
_MAX_BAD_WORDS = 2048
_MAX_BAD_WORD_TOKENS = 512
_MAX_NAME = 512  # characters of ids, names and salts
_MAX_TIMEOUT_SECONDS = 7 * 86_400.0
_GREEDY_BELOW = 1e-5  # a smaller temperature would overflow the logits and means greedy anyway


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What the loaded model and the configuration allow, and what a caller may `expect`."""

    max_model_len: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    max_logprobs: int
    accepts_priority: bool
    tokenizer_sha256: str
    weights_version: str


@dataclass(frozen=True, slots=True)
class Submission:
    """A checked request. `resumed` maps a choice to its output so far, `finished` must not run."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams  # the same for all choices
    n: int
    resumed: dict[int, tuple[int, ...]]
    finished: frozenset[int]
    priority: int
    tenant: str
    cache_salt: str
    timeout: float | None  # seconds from receipt
    constraint: Constraint | None = None  # to be compiled before the request runs
    ended_by_grammar: frozenset[int] = frozenset()  # choices whose output so far is complete
    traceparent: str = ""
    attempt: int = 0
    prepared_in: float = 0.0  # seconds that its constraint took to be compiled
    adapter: ServedAdapter | None = None

    @property
    def choices(self) -> list[int]:
        """The choices that run."""
        return [choice for choice in range(self.n) if choice not in self.finished]

    def requests(
        self, first_key: int, *, arrival: float, deadline: float | None, group: object
    ) -> tuple[Request, ...]:
        """See `make_requests`."""
        return make_requests(self, first_key, arrival=arrival, deadline=deadline, group=group)

    def story(self, arrival: float) -> RequestStory:
        """What its spans begin with."""
        return RequestStory(
            "text_completion",
            self.request_id,
            self.traceparent,
            arrival,
            self.attempt,
            self.prepared_in,
            len(self.prompt_token_ids),
        )


def parse_submission(
    request: pb.GenerateRequest,
    limits: RequestLimits,
    draw_seed: Callable[[], int],
    adapter: ServedAdapter | None = None,
) -> Submission:
    """Checks a request, whose adapter was found.

    Raises RequestError: INVALID_ARGUMENT, or FAILED_PRECONDITION where `expect` does not hold.
    """
    _check_expectations(request, limits)
    if request.priority and not limits.accepts_priority:
        raise invalid("priority", "the engine schedules by arrival (--scheduling-policy fcfs)")
    for field in ("request_id", "tenant", "cache_salt", "traceparent"):
        if len(getattr(request, field)) > _MAX_NAME:
            raise invalid(field, f"must have at most {_MAX_NAME} characters")
    prompt = tuple(request.prompt_token_ids)
    _check_prompt(prompt, limits)
    n = request.n if request.HasField("n") else 1
    if not 1 <= n <= MAX_CHOICES:
        raise invalid("n", f"must be between 1 and {MAX_CHOICES}, not {n}")
    sampling = _parse_sampling(request, len(prompt), limits, draw_seed)
    resumed, finished = _parse_resume(request.resume, n, sampling.max_tokens, limits)
    return Submission(
        request_id=request.request_id,
        prompt_token_ids=prompt,
        sampling=sampling,
        n=n,
        resumed=resumed,
        finished=finished,
        priority=request.priority,
        tenant=request.tenant,
        cache_salt=request.cache_salt,
        timeout=_parse_timeout(request),
        constraint=_parse_constraint(request),
        traceparent=valid_traceparent(request.traceparent),
        attempt=request.attempt,
        adapter=adapter,
    )


def _check_expectations(request: pb.GenerateRequest, limits: RequestLimits) -> None:
    expected = request.expect
    for field, wanted, actual in (
        ("tokenizer_sha256", expected.tokenizer_sha256, limits.tokenizer_sha256),
        ("weights_version", expected.weights_version, limits.weights_version),
    ):
        if wanted and wanted != actual:
            raise mismatch(f"expect.{field}", wanted, actual)


def _check_prompt(prompt: tuple[int, ...], limits: RequestLimits) -> None:
    if not prompt:
        raise invalid("prompt_token_ids", "must not be empty")
    if len(prompt) >= limits.max_model_len:
        raise invalid(
            "prompt_token_ids",
            f"the prompt has {len(prompt)} tokens, but prompt and at least one output token must "
            f"fit in a context of {limits.max_model_len}",
        )
    _check_token_ids("prompt_token_ids", prompt, limits.vocab_size)


def _check_token_ids(field: str, token_ids: Sequence[int], vocab_size: int) -> None:
    if token_ids and max(token_ids) >= vocab_size:
        index = next(i for i, token_id in enumerate(token_ids) if token_id >= vocab_size)
        raise invalid(
            f"{field}[{index}]",
            f"token id {token_ids[index]} is not below the vocabulary's size {vocab_size}",
        )


def _parse_sampling(
    request: pb.GenerateRequest,
    prompt_tokens: int,
    limits: RequestLimits,
    draw_seed: Callable[[], int],
) -> SamplingParams:
    given, stopping = request.sampling, request.stopping
    temperature = _number(given, "temperature", 1.0, minimum=0.0)
    top_p = _number(given, "top_p", 1.0, maximum=1.0)
    if top_p <= 0.0:
        raise invalid("sampling.top_p", f"must be above 0 and at most 1, not {top_p:g}")
    allowed = tuple(given.allowed_token_ids)
    _check_token_ids("sampling.allowed_token_ids", allowed, limits.vocab_size)
    stops = _parse_stop_ids(stopping.stop_token_ids, limits)
    eos = frozenset() if stopping.ignore_eos else limits.eos_token_ids
    max_tokens = _parse_max_tokens(stopping, prompt_tokens, limits)
    ends = (stops | eos) if stopping.min_tokens else frozenset()
    if stopping.min_tokens > max_tokens:
        raise invalid(
            "stopping.min_tokens",
            f"{stopping.min_tokens} is above the most output tokens {max_tokens}",
        )
    bad_words = _parse_bad_words(given, limits)
    if allowed and ends.issuperset(allowed):
        raise invalid(
            "sampling.allowed_token_ids", "allows only tokens that end the output before min_tokens"
        )
    banned = {run[0] for run in bad_words if len(run) == 1}
    if banned and banned.issuperset(allowed or range(limits.vocab_size)):
        raise invalid("sampling.bad_words", "leaves no token that may be sampled")
    top_logprobs, prompt_logprobs = _parse_logprobs(request, prompt_tokens, limits)
    return SamplingParams(
        temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
        top_k=min(given.top_k, limits.vocab_size),
        top_p=top_p,
        min_p=_number(given, "min_p", 0.0, minimum=0.0, maximum=1.0),
        repetition_penalty=_number(given, "repetition_penalty", 1.0, minimum=0.01, maximum=100.0),
        frequency_penalty=_number(given, "frequency_penalty", 0.0, minimum=-2.0, maximum=2.0),
        presence_penalty=_number(given, "presence_penalty", 0.0, minimum=-2.0, maximum=2.0),
        logit_bias=_parse_logit_bias(given, limits),
        allowed_token_ids=allowed,
        bad_words=bad_words,
        seed=given.seed if given.HasField("seed") else draw_seed(),
        max_tokens=max_tokens,
        min_tokens=stopping.min_tokens,
        stop_token_ids=stops,
        eos_token_ids=eos,
        masked_until_min_tokens=ends,
        logprobs=top_logprobs,
        prompt_logprobs=prompt_logprobs,
        prompt_logprobs_from=request.logprobs.prompt_from,
    )


def _number(
    given: pb.SamplingParams,
    field: str,
    default: float,
    *,
    minimum: float = -math.inf,
    maximum: float = math.inf,
) -> float:
    """A finite number within inclusive bounds, or the default where it is absent."""
    if not given.HasField(field):  # type: ignore[arg-type] # the stub lists the names as literals
        return default
    value = float(getattr(given, field))
    if not math.isfinite(value) or not minimum <= value <= maximum:
        bounds = [f"at least {minimum:g}"] if minimum > -math.inf else []
        bounds += [f"at most {maximum:g}"] if maximum < math.inf else []
        raise invalid(f"sampling.{field}", f"must be {' and '.join(bounds)}, not {value:g}")
    return value


def _parse_logit_bias(given: pb.SamplingParams, limits: RequestLimits) -> dict[int, float]:
    biases = dict(given.logit_bias)
    if len(biases) > _MAX_LOGIT_BIASES:
        raise invalid(
            "sampling.logit_bias", f"has {len(biases)} entries, more than {_MAX_LOGIT_BIASES}"
        )
    for token_id, bias in biases.items():
        if token_id >= limits.vocab_size:
            raise invalid(
                f"sampling.logit_bias[{token_id}]",
                f"the token id is not below the vocabulary's size {limits.vocab_size}",
            )
        if not -100.0 <= bias <= 100.0:  # NaN fails this as well
            raise invalid(
                f"sampling.logit_bias[{token_id}]", f"must be between -100 and 100, not {bias:g}"
            )
    return biases


def _parse_bad_words(
    given: pb.SamplingParams, limits: RequestLimits
) -> tuple[tuple[int, ...], ...]:
    if len(given.bad_words) > _MAX_BAD_WORDS:
        raise invalid(
            "sampling.bad_words", f"has {len(given.bad_words)} entries, more than {_MAX_BAD_WORDS}"
        )
    for index, word in enumerate(given.bad_words):
        path = f"sampling.bad_words[{index}].token_ids"
        if not 1 <= len(word.token_ids) <= _MAX_BAD_WORD_TOKENS:
            raise invalid(
                path,
                f"must have between 1 and {_MAX_BAD_WORD_TOKENS} tokens, not {len(word.token_ids)}",
            )
        _check_token_ids(path, word.token_ids, limits.vocab_size)
    return tuple(tuple(word.token_ids) for word in given.bad_words)


def _parse_stop_ids(given: Sequence[int], limits: RequestLimits) -> frozenset[int]:
    if len(given) > _MAX_STOP_TOKENS:
        raise invalid(
            "stopping.stop_token_ids", f"has {len(given)} entries, more than {_MAX_STOP_TOKENS}"
        )
    _check_token_ids("stopping.stop_token_ids", given, limits.vocab_size)
    return frozenset(given)


def _parse_max_tokens(
    stopping: pb.StoppingParams, prompt_tokens: int, limits: RequestLimits
) -> int:
    rest = limits.max_model_len - prompt_tokens
    if not stopping.HasField("max_tokens"):
        return rest
    if stopping.max_tokens == 0:
        raise invalid("stopping.max_tokens", "must be at least 1, not 0")
    return min(stopping.max_tokens, rest)


def _parse_logprobs(
    request: pb.GenerateRequest, prompt_tokens: int, limits: RequestLimits
) -> tuple[int | None, int | None]:
    asked = request.logprobs
    top_k = asked.top_k if asked.HasField("top_k") else None
    prompt_top_k = asked.prompt_top_k if asked.HasField("prompt_top_k") else None
    limit = min(limits.max_logprobs, limits.vocab_size)
    for field, value in (("top_k", top_k), ("prompt_top_k", prompt_top_k)):
        if value is not None and value > limit:
            raise invalid(f"logprobs.{field}", f"must be at most {limit}, not {value}")
    if prompt_top_k is not None and asked.prompt_from >= prompt_tokens:
        raise invalid(
            "logprobs.prompt_from",
            f"position {asked.prompt_from} is not in the prompt of {prompt_tokens} tokens",
        )
    return top_k, prompt_top_k


def _parse_resume(
    given: Iterable[pb.ResumeChoice], n: int, max_tokens: int, limits: RequestLimits
) -> tuple[dict[int, tuple[int, ...]], frozenset[int]]:
    outputs: dict[int, tuple[int, ...]] = {}
    finished = set()
    for index, part in enumerate(given):
        path = f"resume[{index}]"
        if part.choice >= n:
            raise invalid(f"{path}.choice", f"choice {part.choice} is not below n, which is {n}")
        if part.choice in outputs:
            raise invalid(f"{path}.choice", f"choice {part.choice} is given twice")
        tokens = tuple(part.output_token_ids)
        if len(tokens) > max_tokens:
            raise invalid(
                f"{path}.output_token_ids",
                f"has {len(tokens)} tokens, more than the most output tokens {max_tokens}",
            )
        _check_token_ids(f"{path}.output_token_ids", tokens, limits.vocab_size)
        outputs[part.choice] = tokens
        if part.finished:
            finished.add(part.choice)
    if len(finished) == n:
        raise invalid("resume", "every choice is finished, nothing is left to run")
    return outputs, frozenset(finished)


def _parse_timeout(request: pb.GenerateRequest) -> float | None:
    if not request.HasField("timeout"):
        return None
    seconds = request.timeout.seconds + request.timeout.nanos / 1e9
    if not 0.0 < seconds <= _MAX_TIMEOUT_SECONDS:
        raise invalid(
            "timeout", f"must be above 0 and at most {_MAX_TIMEOUT_SECONDS:g} s, not {seconds:g} s"
        )
    return seconds


def _parse_constraint(request: pb.GenerateRequest) -> Constraint | None:
    if not request.HasField("constraint"):
        return None
    kind = request.constraint.WhichOneof("kind")
    if kind is None:
        raise invalid("constraint", "needs one of json_schema, regex, choice, ebnf, structural_tag")
    if kind == "choice":
        return Constraint(kind, choices=tuple(request.constraint.choice.items))
    return Constraint(kind, getattr(request.constraint, kind))


def make_requests(
    submission: Submission, first_key: int, *, arrival: float, deadline: float | None, group: object
) -> tuple[Request, ...]:
    """The scheduler's requests, one for each choice that runs, with keys from `first_key` on.

    The prompt is the same for all of them, so the first alone reports its log-probabilities.
    """
    without_prompt = replace(submission.sampling, prompt_logprobs=None)
    adapter = submission.adapter
    return tuple(
        Request(
            key=first_key + index,
            request_id=submission.request_id,
            choice=choice,
            prompt_token_ids=submission.prompt_token_ids,
            sampling=without_prompt if index else submission.sampling,
            arrival=arrival,
            output_token_ids=list(submission.resumed.get(choice, ())),
            priority=submission.priority,
            tenant=submission.tenant,
            cache_salt=submission.cache_salt,
            lora=adapter.version if adapter else "",
            adapter_slot=adapter.slot if adapter else -1,
            deadline=deadline,
            group=group,
            grammar_ended=choice in submission.ended_by_grammar,
        )
        for index, choice in enumerate(submission.choices)
    )
