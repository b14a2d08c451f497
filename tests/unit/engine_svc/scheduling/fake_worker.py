"""A worker of a few lines in place of a model, which believes nothing that it is told.

It keeps tokens and block tables as the real one does, and a "KV cache" in which each slot holds a
fingerprint of all tokens up to its position. Before it samples, it reads every slot of the request
back: a block shared wrongly, reused too early or never computed is found at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from engine_svc.batch import (
    NewRequest,
    PromptLogprobsPart,
    SampledToken,
    SampledTokens,
    ScheduledBatch,
    TokenLogprobs,
)
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.request import Request
from engine_svc.scheduling.scheduler import Scheduler, SchedulerConfig, StepOutputs

BLOCK = 4  # tokens in a block: small, so that a test can be read
EOS = 0
VOCAB = 11


def fingerprint(tokens: list[int], salt: str = "") -> int:
    """A number that depends on every token."""
    return int.from_bytes(hashlib.sha256(repr((salt, tokens)).encode()).digest()[:6], "little")


# (tokens so far, choice) -> the next one
Model = Callable[[list[int], int], int]


def next_token(tokens: list[int], choice: int) -> int:
    """The token that a "model" gives after `tokens`; it never repeats itself for long."""
    return fingerprint(tokens, salt=str(choice)) % VOCAB


def echo(pattern: Sequence[bool], period: int = 3) -> Model:
    """A model that says again what it said `period` tokens ago, where the pattern says so."""

    def model(tokens: list[int], choice: int) -> int:
        if pattern[len(tokens) % len(pattern)] and len(tokens) >= period:
            return tokens[-period]
        return next_token(tokens, choice)

    return model


@dataclass
class _Known:
    request: NewRequest
    tokens: list[int]
    blocks: list[int]


@dataclass
class FakeWorker:
    """Executes plans. `failing` holds keys whose logits shall not be finite."""

    block_size: int = BLOCK
    model: Model = next_token
    failing: set[int] = field(default_factory=set)
    batches: list[ScheduledBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known: dict[int, _Known] = {}
        self._kv: dict[tuple[int, int], int] = {}

    def execute(self, batch: ScheduledBatch) -> SampledTokens:
        """Computes a step; AssertionError if the plan makes no sense."""
        self.batches.append(batch)
        for key in batch.removed:
            del self.known[key]
        for joined in batch.joined:
            assert joined.key not in self.known
            tokens = [*joined.prompt_token_ids, *joined.output_token_ids]
            self.known[joined.key] = _Known(joined, tokens, list(joined.block_ids))
        sampled, parts, failed = [], [], []
        for chunk in batch.chunks:
            known, end = self.known[chunk.key], chunk.first_position + chunk.num_tokens
            known.blocks += chunk.new_block_ids
            drafts = chunk.draft_token_ids
            assert chunk.num_tokens > len(drafts)
            assert end <= len(known.tokens) + len(drafts)
            tokens = [*known.tokens, *drafts]
            for position in range(chunk.first_position, end):
                self._kv[self._slot(known, position)] = fingerprint(tokens[: position + 1])
            if chunk.key in self.failing:
                failed.append((chunk.key, "logits are not finite"))
                known.tokens.append(-1)  # what a step that was begun already goes on from
                continue
            parts += self._prompt_logprobs(known, chunk.first_position, end)
            if chunk.samples:
                assert end == len(tokens)
                sampled += self._sample(known, drafts)
            else:
                assert not drafts
        return SampledTokens(tuple(sampled), tuple(parts), tuple(failed))

    def _sample(self, known: _Known, drafts: Sequence[int]) -> list[SampledToken]:
        """The next token, and one more for each right guess."""
        sampled = []
        for draft in (*drafts, None):
            self._check_kv(known)
            token = self.model(known.tokens, known.request.choice)
            known.tokens.append(token)
            sampled.append(SampledToken(known.request.key, token, None))
            if token != draft:
                break
        return sampled

    def _slot(self, known: _Known, position: int) -> tuple[int, int]:
        return known.blocks[position // self.block_size], position % self.block_size

    def _check_kv(self, known: _Known) -> None:
        for position in range(len(known.tokens)):
            held = self._kv.get(self._slot(known, position))
            assert held == fingerprint(known.tokens[: position + 1]), (
                f"request {known.request.key}: wrong KV at position {position}"
            )

    def _prompt_logprobs(self, known: _Known, start: int, end: int) -> list[PromptLogprobsPart]:
        """Entries for all asked positions that follow a computed one, told before or not."""
        prompt, sampling = known.request.prompt_token_ids, known.request.sampling
        first = max(sampling.prompt_logprobs_from, start + 1 if start else 0)
        stop = min(end + 1, len(prompt))
        if sampling.prompt_logprobs is None or known.request.output_token_ids or first >= stop:
            return []
        entries = tuple(TokenLogprobs(-float(token), 1, (), ()) for token in prompt[first:stop])
        return [PromptLogprobsPart(known.request.key, first, entries)]


class Engine:
    """The step loop with a fake worker and a clock that a test moves by hand."""

    def __init__(self, num_blocks: int = 64, model: Model = next_token, **limits) -> None:
        defaults = {
            "max_num_seqs": 8,
            "max_num_batched_tokens": 32,
            "max_model_len": 64,
            "max_num_queued_reqs": 100,
            "max_num_queued_tokens": 10_000,
        }
        self.now = 0.0
        self.kv = KVCacheManager(num_blocks, limits.pop("block_size", BLOCK))
        config = SchedulerConfig(**(defaults | limits))
        self.scheduler = Scheduler(config, self.kv, clock=lambda: self.now)
        self.worker = FakeWorker(self.kv.block_size, model)
        self.outputs: list[StepOutputs] = []
        self._keys = count()

    def request(self, prompt, *, max_tokens: int = 4, resumed=(), choice: int = 0, **fields):
        """A request that is not added yet. Sampling fields and request fields may be mixed."""
        names = {"priority", "deadline", "cache_salt", "group"}
        own = {name: fields.pop(name) for name in names & fields.keys()}
        return Request(
            key=next(self._keys),
            request_id="r",
            choice=choice,
            prompt_token_ids=tuple(prompt),
            output_token_ids=list(resumed),
            sampling=SamplingParams(max_tokens=max_tokens, **fields),
            arrival=self.now,
            **own,
        )

    def add(self, prompt, **fields) -> Request:
        """Makes and adds a request."""
        request = self.request(prompt, **fields)
        self.scheduler.add(request)
        return request

    def step(self, seconds: float = 0.001) -> StepOutputs | None:
        """One turn of the loop; None if there was nothing to do."""
        batch = self.scheduler.schedule()
        if batch is None:
            return None
        outputs = self.scheduler.update(batch, self.worker.execute(batch), seconds)
        self.outputs.append(outputs)
        self.scheduler.check_integrity()
        return outputs

    def run(self, max_steps: int = 10_000) -> None:
        """Steps until nothing is left."""
        for _ in range(max_steps):
            if self.step() is None:
                return
        raise AssertionError(f"still busy after {max_steps} steps")

    @property
    def last_batch(self) -> ScheduledBatch:
        """The plan of the last step."""
        return self.worker.batches[-1]

    def scheduled(self, request: Request) -> int:
        """Tokens that the last step computed for a request."""
        return sum(c.num_tokens for c in self.last_batch.chunks if c.key == request.key)


class EngineAhead(Engine):
    """The same with one step ahead: between two turns a step is in flight."""

    def __init__(self, *args, **limits) -> None:
        super().__init__(*args, **limits)
        self.in_flight: list[tuple[ScheduledBatch, SampledTokens]] = []
        self.num_ahead = 0  # steps begun while another was in flight

    def plan(self) -> ScheduledBatch | None:
        """Begins the next step if it can be planned now. The worker computes it at once."""
        scheduler = self.scheduler
        batch = scheduler.schedule_ahead() if self.in_flight else scheduler.schedule()
        if batch is not None:
            self.num_ahead += bool(self.in_flight)
            self.in_flight.append((batch, self.worker.execute(batch)))
        return batch

    def collect(self, seconds: float = 0.001) -> StepOutputs:
        """Takes in the oldest step in flight."""
        batch, sampled = self.in_flight.pop(0)
        outputs = self.scheduler.update(batch, sampled, seconds)
        self.outputs.append(outputs)
        self.scheduler.check_integrity()
        return outputs

    def step(self, seconds: float = 0.001) -> StepOutputs | None:
        """Turns until a step's results come; None if there is nothing to do."""
        while self.plan() is not None and len(self.in_flight) < 2:
            pass
        return self.collect(seconds) if self.in_flight else None
