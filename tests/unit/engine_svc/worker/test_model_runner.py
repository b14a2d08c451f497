"""The model runner against a decoder that sees only what slots, positions and block tables say.

Whatever the plan, a request's tokens and log-probabilities must be those of its own tokens alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from engine_svc.batch import NewRequest, ScheduledBatch, ScheduledChunk, TokenLogprobs
from engine_svc.sampling_params import SamplingParams
from engine_svc.worker.logprobs import no_logprobs, token_logprobs
from engine_svc.worker.model_runner import ModelRunner
from engine_svc.worker.sampler import NOT_FINITE, SamplingState, sample
from tests.support.paged_decoder import PagedDecoder, logits_after

VOCAB, BLOCK, NUM_BLOCKS = 97, 4, 256
LENGTHS = (31, 32, 33, 63, 64, 65, 97)
GREEDY = SamplingParams(temperature=0.0)
DRAWN = SamplingParams(
    seed=5,
    top_k=30,
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    logprobs=3,
    min_tokens=4,
    masked_until_min_tokens=frozenset({1}),
)


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(np.random.default_rng([length, seed]).integers(0, VOCAB, length).tolist())


def expected_output(prompt, sampling: SamplingParams, count: int, choice: int = 0):
    """Tokens and log-probabilities by the definition: each from all tokens before it."""
    state, output, entries = SamplingState(sampling, choice, prompt, (), VOCAB), [], []
    for _ in range(count):
        row = logits_after((*prompt, *output), VOCAB)
        output.append(sample(row[None], [state]).token_ids[0])
        state.append(output[-1])
        if sampling.logprobs is not None:
            entries.append(token_logprobs(row, output[-1], sampling.logprobs))
    return output, entries


def expected_prompt_logprobs(prompt, top_k: int) -> list[TokenLogprobs]:
    """All positions but the first, which has none."""
    return [
        token_logprobs(logits_after(prompt[:at], VOCAB), prompt[at], top_k)
        for at in range(1, len(prompt))
    ]


@dataclass
class Job:
    """A request as a scheduler knows it."""

    prompt: tuple[int, ...]
    sampling: SamplingParams = GREEDY
    choice: int = 0
    output: list[int] = field(default_factory=list)
    entries: list[TokenLogprobs] = field(default_factory=list)
    prompt_entries: dict[int, TokenLogprobs] = field(default_factory=dict)
    failure: str | None = None
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    here: bool = False  # on the worker

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.output)


class Driver:
    """Just enough of a scheduler: hands out scattered blocks and cuts chunks as told."""

    def __init__(self, **limits: int) -> None:
        self.decoder = PagedDecoder(VOCAB)
        self.decoder.allocate_kv(NUM_BLOCKS, BLOCK)
        sizes = {"max_num_seqs": 12, "max_model_len": 160, "max_num_batched_tokens": 512} | limits
        self.runner = ModelRunner(self.decoder, vocab_size=VOCAB, block_size=BLOCK, **sizes)
        self.free = np.random.default_rng(1).permutation(NUM_BLOCKS).tolist()
        self.jobs: dict[int, Job] = {}
        self.removed: list[int] = []

    def add(self, job: Job) -> Job:
        self.jobs[len(self.jobs) + 100] = job
        return job

    def drop(self, job: Job, *, keep_blocks: int = 0) -> None:
        """Takes a job off the worker; blocks kept are a cached prefix when it comes back."""
        if job.here:
            self.removed += [key for key, other in self.jobs.items() if other is job]
        self.free = job.blocks[keep_blocks:] + self.free
        job.blocks, job.here = job.blocks[:keep_blocks], False
        job.num_computed = min(keep_blocks * BLOCK, job.num_tokens - 1)

    def step(self, *jobs: Job, chunk: int = 512) -> None:
        """Computes up to `chunk` tokens of each job and takes in what comes out."""
        joined, chunks = [], []
        for key, job in self.jobs.items():
            if not any(job is other for other in jobs):
                continue
            if not job.here:
                joined.append(
                    NewRequest(
                        key,
                        job.choice,
                        job.prompt,
                        tuple(job.output),
                        job.sampling,
                        tuple(job.blocks),
                    )
                )
                job.here = True
            count = min(chunk, job.num_tokens - job.num_computed)
            end = job.num_computed + count
            new = tuple(self.free.pop() for _ in range(-(-end // BLOCK) - len(job.blocks)))
            job.blocks += new
            samples = end == job.num_tokens
            chunks.append(ScheduledChunk(key, job.num_computed, count, new, samples))
            job.num_computed = end
        removed, self.removed = tuple(self.removed), []
        result = self.runner.execute(ScheduledBatch(0, removed, tuple(joined), tuple(chunks)))
        for key, message in result.failed:
            self.jobs[key].failure = message
        for part in result.prompt_logprobs:
            for at, entry in enumerate(part.entries, part.first_position):
                assert at not in self.jobs[part.key].prompt_entries, "reported twice"
                self.jobs[part.key].prompt_entries[at] = entry
        expected = [c.key for c in chunks if c.samples and self.jobs[c.key].failure is None]
        assert [token.key for token in result.tokens] == expected
        for token in result.tokens:
            self.jobs[token.key].output.append(token.token_id)
            if token.logprobs is not None:
                self.jobs[token.key].entries.append(token.logprobs)

    def run(self, *jobs: Job, until: int, chunk: int = 512) -> None:
        """Steps until each job has `until` tokens of output."""
        while any(len(job.output) < until for job in jobs):
            self.step(*(job for job in jobs if len(job.output) < until), chunk=chunk)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("chunk", [1, 3, 4, 32, 512])
def test_tokens_are_those_of_the_definition_however_the_prompt_is_cut(chunk, sampling):
    driver = Driver()
    jobs = [driver.add(Job(prompt_of(length), sampling)) for length in (1, 2, 4, 31, 32, 33)]

    driver.run(*jobs, until=6, chunk=chunk)

    for job in jobs:
        assert (job.output, job.entries) == expected_output(job.prompt, sampling, 6)


@pytest.mark.parametrize("keep_blocks", [0, 1, 5])
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_preempted_request_goes_on_as_if_undisturbed(sampling, keep_blocks):
    driver = Driver()
    job, other = driver.add(Job(prompt_of(30), sampling)), driver.add(Job(prompt_of(9)))
    driver.run(job, other, until=4)

    driver.drop(job, keep_blocks=keep_blocks)
    driver.run(other, until=6)  # takes over some of the blocks
    driver.run(job, until=9, chunk=8)

    assert (job.output, job.entries) == expected_output(job.prompt, sampling, 9)
    assert other.output == expected_output(other.prompt, GREEDY, 6)[0]


def test_a_request_may_leave_and_come_back_in_one_step():
    driver = Driver()
    job = driver.add(Job(prompt_of(10), DRAWN))
    driver.run(job, until=3)

    driver.drop(job)
    driver.step(job)

    assert job.output == expected_output(job.prompt, DRAWN, 4)[0]


def test_requests_that_join_and_leave_do_not_touch_each_other():
    driver = Driver(max_num_seqs=5)
    random = np.random.default_rng(3)
    waiting = [
        driver.add(Job(prompt_of(1 + i % 40, i), (GREEDY, DRAWN)[i % 2], choice=i % 3))
        for i in range(40)
    ]
    running: list[Job] = []

    while waiting or running:
        while waiting and len(running) < 5:
            running.append(waiting.pop(0))
        driver.step(*running, chunk=int(random.integers(1, 20)))
        if random.random() < 0.2:
            running.append(running.pop(0))
            driver.drop(running[-1], keep_blocks=int(random.integers(0, 2)))
        for job in [job for job in running if len(job.output) >= 5]:
            running.remove(job)
            driver.drop(job)

    for job in driver.jobs.values():
        expected = expected_output(job.prompt, job.sampling, len(job.output), job.choice)
        assert (job.output, job.entries) == expected


def test_choices_share_prompt_blocks_but_not_random_streams():
    driver = Driver()
    jobs = [driver.add(Job(prompt_of(12), SamplingParams(seed=9), choice=i)) for i in range(4)]
    driver.run(jobs[0], until=1)
    for job in jobs[1:]:
        job.blocks, job.num_computed = jobs[0].blocks[:2], 2 * BLOCK

    driver.run(*jobs, until=8)

    assert [job.output for job in jobs] == [
        expected_output(job.prompt, job.sampling, 8, job.choice)[0] for job in jobs
    ]
    assert len({tuple(job.output) for job in jobs}) == 4


@pytest.mark.parametrize("chunk", [32, 512], ids=["chunked", "whole"])
def test_prompt_logprobs_cover_every_position_once(chunk):
    driver = Driver()
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=2)
    jobs = [driver.add(Job(prompt_of(length), sampling)) for length in LENGTHS]

    driver.run(*jobs, until=2, chunk=chunk)

    for job in jobs:
        assert list(job.prompt_entries) == list(range(len(job.prompt)))
        assert repr(job.prompt_entries[0]) == repr(no_logprobs(2))  # NaN is unequal to itself
        later = list(job.prompt_entries.values())[1:]
        assert later == expected_prompt_logprobs(job.prompt, 2)
        assert job.output == expected_output(job.prompt, GREEDY, 2)[0]


@pytest.mark.parametrize("keep_blocks", [0, 3, 7])
@pytest.mark.parametrize("num_computed", [31, 32, 48])
def test_prompt_logprobs_are_not_reported_again_after_a_preemption(num_computed, keep_blocks):
    driver = Driver()
    job = driver.add(Job(prompt_of(65), SamplingParams(temperature=0.0, prompt_logprobs=1)))
    driver.step(job, chunk=num_computed)

    driver.drop(job, keep_blocks=keep_blocks)
    driver.run(job, until=1, chunk=10)
    driver.drop(job)
    driver.run(job, until=2)

    assert list(job.prompt_entries) == list(range(65))
    assert list(job.prompt_entries.values())[1:] == expected_prompt_logprobs(job.prompt, 1)


@pytest.mark.parametrize("first", [0, 1, 20, 32, 33, 64, 65, 900])
def test_prompt_logprobs_start_where_asked(first):
    driver = Driver()
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=0, prompt_logprobs_from=first)
    job = driver.add(Job(prompt_of(65), sampling))

    driver.run(job, until=1, chunk=32)

    assert list(job.prompt_entries) == list(range(first, 65))
    assert all(
        job.prompt_entries[at] == entry
        for at, entry in enumerate(expected_prompt_logprobs(job.prompt, 0), 1)
        if at >= first
    )


def test_prompt_logprobs_may_start_behind_a_cached_prefix():
    driver = Driver()
    first = driver.add(Job(prompt_of(65)))
    driver.run(first, until=1)
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=1, prompt_logprobs_from=33)
    job = driver.add(Job(first.prompt, sampling, blocks=first.blocks[:8], num_computed=32))

    driver.run(job, until=1)

    assert list(job.prompt_entries.values()) == expected_prompt_logprobs(job.prompt, 1)[32:]


def test_a_prompt_of_one_token_has_one_empty_entry():
    driver = Driver()
    job = driver.add(Job((3,), SamplingParams(temperature=0.0, prompt_logprobs=1)))

    driver.run(job, until=1)

    assert list(job.prompt_entries) == [0]
    assert math.isnan(job.prompt_entries[0].logprob)


def test_a_resumed_request_does_not_repeat_its_prompt_logprobs():
    driver = Driver()
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=1)
    whole = expected_output(prompt_of(33), GREEDY, 6)[0]
    job = driver.add(Job(prompt_of(33), sampling, output=whole[:3]))

    driver.run(job, until=6)

    assert job.prompt_entries == {}
    assert job.output == whole


def test_a_plan_that_skips_wanted_prompt_positions_fails_its_request_alone():
    driver = Driver()
    first = driver.add(Job(prompt_of(20)))
    driver.run(first, until=1)
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=1)
    job = driver.add(Job(first.prompt, sampling, blocks=first.blocks[:2], num_computed=8))

    driver.step(job, first)

    assert "prompt position 1 are lost" in job.failure
    assert job.output == []
    assert first.output == expected_output(first.prompt, GREEDY, 2)[0]


@pytest.mark.parametrize("prompt_logprobs", [None, 1])
def test_logits_that_are_not_finite_fail_their_request_alone(prompt_logprobs):
    driver = Driver()
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=prompt_logprobs)
    poisoned = driver.add(Job((*range(1, 30), 90), sampling))
    healthy = driver.add(Job(tuple(range(1, 20)), sampling))
    driver.decoder.poison = 90

    driver.step(healthy, poisoned)

    assert poisoned.failure == NOT_FINITE
    assert poisoned.output == []
    assert healthy.output == expected_output(healthy.prompt, GREEDY, 1)[0]


def test_a_bad_row_within_the_prompt_fails_before_a_token_is_sampled():
    driver = Driver()
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=1)
    job = driver.add(Job((1, 2, 90, 4, 5), sampling))
    driver.decoder.poison = 90

    driver.step(job)

    assert job.failure == NOT_FINITE
    assert job.output == []
    assert job.prompt_entries == {}


def test_only_wanted_rows_have_their_logits_computed():
    driver = Driver()
    plain = driver.add(Job(prompt_of(40)))
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=1, prompt_logprobs_from=30)
    late = driver.add(Job(prompt_of(40), sampling))

    driver.step(plain, late, chunk=20)
    driver.step(plain, late)

    # Each request's last row is picked from; rows 29 to 38 predict positions 30 to 39.
    assert driver.decoder.steps == [(40, 0, 0), (40, 2, 10)]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (GREEDY, (5, 1, 0)),
        (SamplingParams(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05), (5, 1, 0)),
        (SamplingParams(temperature=0.0, logprobs=0), (5, 0, 1)),
        (SamplingParams(frequency_penalty=0.5), (5, 0, 1)),
        (SamplingParams(logit_bias={3: 1.0}), (5, 0, 1)),
        (SamplingParams(allowed_token_ids=(3, 4)), (5, 0, 1)),
    ],
    ids=["greedy", "drawn", "logprobs", "penalty", "bias", "allowed"],
)
def test_the_decoder_picks_where_its_logits_are_enough(sampling, expected):
    driver = Driver()

    driver.step(driver.add(Job(prompt_of(5), sampling)))

    assert driver.decoder.steps == [expected]


def test_the_decoder_picks_again_once_the_minimum_length_is_reached():
    driver = Driver()
    sampling = SamplingParams(temperature=0.0, min_tokens=2, masked_until_min_tokens=frozenset({1}))

    driver.run(driver.add(Job(prompt_of(5), sampling)), until=4)

    assert driver.decoder.steps == [(5, 0, 1), (1, 0, 1), (1, 1, 0), (1, 1, 0)]


def test_picked_and_sampled_tokens_come_in_the_order_of_the_chunks():
    driver = Driver()
    samplings = (GREEDY, DRAWN, SamplingParams(seed=3, top_p=0.8), DRAWN, GREEDY)
    jobs = [driver.add(Job(prompt_of(6, i), sampling)) for i, sampling in enumerate(samplings)]

    driver.run(*jobs, until=5)  # the driver compares keys with its chunks at every step

    assert [(job.output, job.entries) for job in jobs] == [
        expected_output(job.prompt, job.sampling, 5) for job in jobs
    ]


def test_unused_entries_of_a_block_table_are_zero():
    driver = Driver(max_num_seqs=2)
    long, gone = driver.add(Job(prompt_of(40))), driver.add(Job(prompt_of(40)))
    driver.step(long, gone)

    driver.drop(gone)
    short = driver.add(Job(prompt_of(5)))
    driver.step(long, short)

    assert driver.decoder.tables == [long.blocks, short.blocks + [0] * 9]


def test_a_context_can_be_filled_to_its_end():
    driver = Driver(max_model_len=20)
    job = driver.add(Job(prompt_of(15)))

    driver.run(job, until=5)

    assert job.output == expected_output(job.prompt, GREEDY, 5)[0]


JOINS = NewRequest(1, 0, (5, 6, 7), (), GREEDY, ())


@pytest.mark.parametrize(
    ("joined", "chunk", "message"),
    [
        ((), ScheduledChunk(1, 0, 3, (0,), samples=True), "request 1 is not among"),
        ((JOINS, JOINS), ScheduledChunk(1, 0, 3, (0,), samples=True), "already here"),
        ((JOINS,), ScheduledChunk(1, 0, 4, (0,), samples=True), "beyond its last known token"),
        ((JOINS,), ScheduledChunk(1, 0, 2, (0,), samples=True), "without reaching its last"),
        ((JOINS,), ScheduledChunk(1, 0, 3, (), samples=True), "no block for some"),
        ((JOINS,), ScheduledChunk(1, 0, 3, (0,) * 99, samples=True), "99 blocks, more than"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_before_the_decoder_runs(joined, chunk, message):
    driver = Driver()

    with pytest.raises(ValueError, match=message):
        driver.runner.execute(ScheduledBatch(0, (), joined, (chunk,)))

    assert driver.decoder.steps == []


def test_limits_are_named_with_both_numbers():
    driver = Driver(max_num_seqs=1, max_model_len=8, max_num_batched_tokens=4)

    with pytest.raises(ValueError, match="9 tokens, more than the limit of 8"):
        driver.step(driver.add(Job(prompt_of(9))))
    job = driver.add(Job(prompt_of(8)))
    with pytest.raises(ValueError, match="8 entries in a buffer of 4"):
        driver.step(job)
    with pytest.raises(ValueError, match="all 1 rows are taken"):
        driver.step(driver.add(Job(prompt_of(2))))
