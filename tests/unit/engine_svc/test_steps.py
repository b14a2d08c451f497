"""One step ahead through the whole loop, on a device that is always late: nothing of it shows.

Scheduler, worker and loop are the real ones; `AsyncPagedDecoder` computes a step only once somebody
waits for it, when the next one has long been planned.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from engine_svc.batch import TokenLogprobs
from engine_svc.constraints.compiler import GrammarCompiler
from engine_svc.constraints.constraint import Constraint
from engine_svc.engine import Cancel, Engine, FlushCache, Report, SetAdapter, Stop, Submit
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.request import FinishReason, Request, RequestStatus
from engine_svc.scheduling.scheduler import Scheduler, SchedulerConfig
from engine_svc.speculation.config import SpeculationConfig
from engine_svc.worker.executor import LocalExecutor
from engine_svc.worker.executor_ahead import AheadExecutor
from engine_svc.worker.model_runner import ModelRunner
from tests.support.async_paged_decoder import AsyncPagedDecoder
from tests.support.byte_tokenizer import END, VOCAB_SIZE, write_byte_tokenizer
from tests.support.marked_adapter import MarkedAdapter

VOCAB = VOCAB_SIZE + 3
BLOCK, MAX_LEN, MAX_SEQS = 4, 96, 12
ENDS = frozenset({END, *range(0, VOCAB, 16)})  # one token in 16 ends an answer


@dataclass
class Run:
    """What a loop told of its requests, by key."""

    decoder: AsyncPagedDecoder
    kv: KVCacheManager
    scheduler: Scheduler
    engine: Engine
    tokens: dict[int, list[int]] = field(default_factory=dict)
    logprobs: dict[int, list[TokenLogprobs | None]] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    vectors: dict[int, list[float]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    num_preempted: int = 0
    lost: bool = False

    def take(self, report: Report) -> None:
        """Notes a report."""
        self.reports.append(report)
        outputs = report.outputs
        if outputs is None:
            return
        self.num_preempted += len(outputs.preempted)
        for token in outputs.tokens:
            assert token.position == len(self.tokens.setdefault(token.key, []))
            self.tokens[token.key].append(token.token_id)
            self.logprobs.setdefault(token.key, []).append(token.logprobs)
        for part in outputs.prompt_logprobs:
            self.prompt_logprobs.setdefault(part.key, []).extend(part.entries)
        self.vectors |= {item.key: item.vector.tolist() for item in outputs.embeddings}
        self.failed |= {item.key: item.message for item in outputs.failed}


OnReport = Callable[[Run, Report], object]


def run(
    requests: Sequence[Request],
    *,
    ahead: bool,
    num_blocks: int = 400,
    on_report: OnReport = lambda _run, _report: None,
    speculation: SpeculationConfig | None = None,
    prepare: Callable[[AsyncPagedDecoder], object] = lambda _: None,
) -> Run:
    """Runs requests to their end. `on_report` is called on the loop's thread, between its turns."""
    ticks = itertools.count()
    clock = lambda: next(ticks) / 1000  # noqa: E731 -- time passes as the loop looks at it
    kv = KVCacheManager(num_blocks, BLOCK)
    config = SchedulerConfig(MAX_SEQS, 24, MAX_LEN, 100, 10_000, speculation=speculation)
    scheduler = Scheduler(config, kv, clock)
    decoder = AsyncPagedDecoder(VOCAB)
    decoder.allocate_kv(num_blocks, BLOCK)
    prepare(decoder)
    runner = ModelRunner(
        decoder,
        vocab_size=VOCAB,
        block_size=BLOCK,
        max_num_seqs=MAX_SEQS,
        max_model_len=MAX_LEN,
        max_num_batched_tokens=24,
    )
    executor = AheadExecutor(runner, decoder) if ahead else LocalExecutor(runner)
    engine = Engine(scheduler, kv, executor, clock)
    told = Run(decoder, kv, scheduler, engine)

    def publish(report: Report) -> None:
        told.take(report)
        on_report(told, report)

    def lose() -> None:
        told.lost = True

    engine.start(publish, lose)
    engine.send(Submit(tuple(requests)))
    while not told.lost and (
        engine.pending_seconds() or any(r.status is not RequestStatus.FINISHED for r in requests)
    ):
        time.sleep(0.001)
    engine.send(Stop())
    assert engine.join(10)
    return told


def plain(key: int, **fields: object) -> Request:
    """A request that asks for nothing special; prompts of all lengths share three beginnings."""
    draw = np.random.default_rng(key)
    begin = [(), tuple(range(8)), tuple(range(40, 53))][key % 3]
    prompt = (*begin, *draw.integers(1, VOCAB, 1 + key % 7).tolist())
    sampling = SamplingParams(
        temperature=0.0 if key % 2 else 0.8,
        top_k=40 if key % 4 else 0,
        seed=key,
        max_tokens=int(draw.integers(1, 40)),
        eos_token_ids=ENDS,
    )
    names = {"adapter_slot", "deadline", "embeds", "lora", "priority"}
    own = {name: fields.pop(name) for name in names & fields.keys()}
    return Request(key, "r", 0, prompt, replace(sampling, **fields), 0.0, **own)


def plain_requests() -> list[Request]:
    """As many as wait for each other."""
    return [plain(key) for key in range(36)]


@pytest.fixture(scope="module")
def grammar(tmp_path_factory):
    """Some words with spaces between them."""
    directory = write_byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    compiler = GrammarCompiler(directory, VOCAB, frozenset({END}))
    yield asyncio.run(compiler.compile(Constraint("regex", "([a-f]{2,5} ){2,6}")))
    compiler.close()


def assert_same(ahead: Run, single: Run, keys: Sequence[int]) -> None:
    """Both told the same of each."""
    for name in ("tokens", "logprobs", "prompt_logprobs", "vectors"):
        told, expected = getattr(ahead, name), getattr(single, name)
        for key in keys:
            assert told.get(key) == expected.get(key), f"{name} of {key}"


def assert_nothing_left(told: Run) -> None:
    """All blocks are free, and the books balance."""
    assert told.kv.num_free_blocks == told.kv.num_blocks
    assert told.engine.integrity_violation is None
    told.scheduler.check_integrity()


@pytest.mark.parametrize("num_blocks", [400, 28], ids=["a roomy pool", "a pool that preempts"])
def test_plain_requests_are_answered_the_same_and_nearly_all_steps_run_ahead(num_blocks):
    requests = plain_requests()
    single = run(plain_requests(), ahead=False, num_blocks=num_blocks)

    ahead = run(requests, ahead=True, num_blocks=num_blocks)

    assert_same(ahead, single, range(36))
    assert_nothing_left(ahead)
    assert {request.finish_reason for request in requests} == {
        FinishReason.STOP, FinishReason.LENGTH
    }  # fmt: skip
    assert bool(ahead.num_preempted) == (num_blocks < 400)
    assert ahead.decoder.num_ahead > (0.6 if ahead.num_preempted else 0.95) * len(
        ahead.decoder.steps
    )


def mixed_requests(grammar: object) -> list[Request]:
    """Of all kinds, now and then: those that need their tokens, that score, embed, end early."""
    endless = {"max_tokens": 70, "eos_token_ids": frozenset()}
    special = [
        {"logprobs": 2, "max_tokens": 3},
        {"grammar": grammar, "max_tokens": 12, "eos_token_ids": frozenset({END})},
        {"repetition_penalty": 1.3, "max_tokens": 4},
        {"bad_words": ((5,), (7, 8)), "max_tokens": 3},
        {"min_tokens": 3, "max_tokens": 20, "masked_until_min_tokens": ENDS},
        {"prompt_logprobs": 1},
        {"embeds": True, "max_tokens": 0},
        {"logit_bias": {3: 4.0}, "max_tokens": 5},
        {"adapter_slot": 1, "lora": "v1"},
        {"priority": -1},
        {"deadline": 0.2, **endless},
        {"deadline": 0.6, **endless},
    ]
    return [
        plain(key, **(special[key // 7 % len(special)] if key % 7 == 0 else {}))
        for key in range(14 * len(special))
    ]


def cancel_some(requests: Sequence[Request]) -> OnReport:
    """Cancels every sixth request once it has three tokens, when the next step is under way, and
    some of those that the next step waits for, when theirs is."""

    def cancel(told: Run, report: Report) -> None:
        keys = [
            token.key
            for token in (report.outputs.tokens if report.outputs else ())
            if token.key % 6 == 1 and token.position == 2
        ]
        if report.outputs is None:
            running = [r.key for r in requests if r.status is RequestStatus.RUNNING]
            keys += [key for key in running if key % 7 == 0 and key > 42][:1]
        if keys:
            told.engine.send(Cancel(tuple(keys)))
            told.engine.send(FlushCache(lambda _count: None))

    return cancel


def adapt(decoder: AsyncPagedDecoder) -> None:
    """Puts an adapter into slot 1."""
    decoder.set_adapter(1, MarkedAdapter(5))


@pytest.mark.parametrize("num_blocks", [400, 28], ids=["a roomy pool", "a pool that preempts"])
def test_whatever_is_asked_for_and_whatever_happens_answers_are_the_same(grammar, num_blocks):
    requests = mixed_requests(grammar)
    setting = {"num_blocks": num_blocks, "prepare": adapt}
    single = run(mixed_requests(grammar), ahead=False, **setting)

    ahead = run(requests, ahead=True, on_report=cancel_some(requests), **setting)

    whole = [r.key for r in requests if r.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)]
    assert_same(ahead, single, [key for key in whole if requests[key].deadline is None])
    for request in requests:
        if request.key not in whole:
            told, other = ahead.tokens.get(request.key, []), single.tokens.get(request.key, [])
            count = min(len(told), len(other))
            assert told[:count] == other[:count]
    assert_nothing_left(ahead)
    assert {request.finish_reason for request in requests} == {
        FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED, FinishReason.EXPIRED
    }  # fmt: skip
    assert ahead.failed == {}
    assert ahead.decoder.num_ahead > len(ahead.decoder.steps) // 2
    assert bool(ahead.num_preempted) == (num_blocks < 400)


def test_a_token_that_is_none_fails_its_request_alone_though_the_next_step_has_begun():
    healthy = run(plain_requests(), ahead=False)
    longest = max(healthy.tokens.values(), key=len)

    def poison(decoder: AsyncPagedDecoder) -> None:
        decoder.poison = longest[len(longest) // 2]

    single = run(plain_requests(), ahead=False, prepare=poison)

    ahead = run(plain_requests(), ahead=True, prepare=poison)

    assert 0 < len(single.failed) < 36
    assert ahead.failed == single.failed
    assert_same(ahead, single, range(36))
    assert_nothing_left(ahead)


def test_guesses_start_from_known_tokens_and_steps_run_ahead_where_none_are_made():
    def requests() -> list[Request]:
        return [plain(key, temperature=0.0, logit_bias={}) for key in range(36)]

    speculation = SpeculationConfig(3, prompt_lookup_max=2, prompt_lookup_min=1)
    single = run(requests(), ahead=False)

    ahead = run(requests(), ahead=True, speculation=speculation)

    assert_same(ahead, single, range(36))
    assert_nothing_left(ahead)
    assert any(report.outputs.drafts for report in ahead.reports if report.outputs)
    assert ahead.decoder.num_ahead > 0


@pytest.mark.parametrize("way", ["broken", "refused"])
def test_a_failed_step_ends_who_runs_and_the_step_after_it_and_nobody_who_waits(way):
    single = run(plain_requests(), ahead=False)

    ahead = run(
        requests := plain_requests(),
        ahead=True,
        prepare=lambda decoder: getattr(decoder, way).add(6),
    )

    lost = {key for report in ahead.reports for key in report.lost} | ahead.failed.keys()
    assert 0 < len(lost) <= 2 * MAX_SEQS
    assert not ahead.lost
    assert_same(ahead, single, [request.key for request in requests if request.key not in lost])
    assert_nothing_left(ahead)


def test_three_failed_steps_in_a_row_end_the_loop():
    requests = [plain(key, max_tokens=30, eos_token_ids=frozenset()) for key in range(40)]

    told = run(requests, ahead=True, prepare=lambda decoder: decoder.broken.update(range(3, 20)))

    assert told.lost
    assert told.engine.integrity_violation is None


def test_a_lost_worker_ends_the_loop_with_a_step_in_flight():
    def lose(told: Run, _report: Report) -> None:
        if len(told.reports) == 4:
            told.engine.lose_worker("it is gone")

    told = run(plain_requests(), ahead=True, on_report=lose)

    assert told.lost


def test_an_adapter_changes_between_steps_and_not_during_one_that_is_in_flight():
    changed = []

    def change(told: Run, report: Report) -> None:
        if len(told.reports) == 5:
            told.engine.send(SetAdapter(0, MarkedAdapter(7), changed.append))

    ahead = run(plain_requests(), ahead=True, on_report=change)

    assert changed == [True]
    assert ahead.decoder.adapters == {0: MarkedAdapter(7)}


def test_the_times_of_steps_ahead_are_those_of_their_phases_and_no_more_than_what_passed():
    told = run(plain_requests(), ahead=True)

    load, reports = told.engine.load, told.reports
    steps = [report for report in reports if report.outputs is not None]
    assert len(steps) == len(told.decoder.steps)
    assert all(report.step_seconds > 0 for report in steps)
    assert sum(report.step_seconds for report in steps) <= reports[-1].at
    phases = (load.phases.schedule, load.phases.sample, load.phases.kernels)
    assert sum(phases) == pytest.approx(sum(report.step_seconds for report in steps))
    assert min(load.phases.schedule, load.phases.kernels) > 0
    assert sum(report.num_step_tokens for report in reports) == sum(
        num_tokens for num_tokens, _, _ in told.decoder.steps
    )
