"""Guesses on the worker, alone and under the real scheduler: they never change what comes out."""

from __future__ import annotations

import numpy as np
import pytest

from engine_svc.batch import NewRequest, ScheduledBatch, ScheduledChunk
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.request import Request
from engine_svc.scheduling.scheduler import Scheduler, SchedulerConfig
from engine_svc.speculation.config import SpeculationConfig
from engine_svc.worker.model_runner import ModelRunner
from engine_svc.worker.sampler import NOT_FINITE
from kernels.backend import StepInputs
from tests.support.paged_decoder import PagedDecoder, logits_after

VOCAB, BLOCK, NUM_BLOCKS, MAX_LEN = 97, 4, 96, 160
GREEDY = SamplingParams(temperature=0.0, max_tokens=60)
DRAWN = SamplingParams(temperature=0.6, top_p=0.9, seed=11, max_tokens=60)


class ForgetfulDecoder(PagedDecoder):
    """Its logits follow from the last token, so that it soon repeats itself, but from all tokens at
    some positions, so that it does not do so forever."""

    def _logits(self, inputs: StepInputs, rows: np.ndarray) -> np.ndarray:
        whole = super()._logits(inputs, rows)  # checks what the plan says
        for i, row in enumerate(rows.tolist()):
            if inputs.positions[row] % 29:
                whole[i] = logits_after([int(inputs.token_ids[row])], self.vocab_size)
        return whole


def worker(decoder: PagedDecoder) -> ModelRunner:
    decoder.allocate_kv(NUM_BLOCKS, BLOCK)
    return ModelRunner(
        decoder,
        vocab_size=VOCAB,
        block_size=BLOCK,
        max_num_seqs=8,
        max_model_len=MAX_LEN,
        max_num_batched_tokens=64,
    )


def guess(runner: ModelRunner, sampling: SamplingParams, drafts: tuple[int, ...]) -> list[int]:
    """The tokens of a step that computes a prompt and verifies guesses at what follows."""
    prompt = (3, 1, 4, 1, 5)
    count = len(prompt) + len(drafts)
    chunk = ScheduledChunk(0, 0, count, tuple(range(-(-count // BLOCK))), True, drafts)
    joined = NewRequest(0, 0, prompt, (), sampling, ())
    result = runner.execute(ScheduledBatch(0, (), (joined,), (chunk,)))
    assert not result.failed
    return [token.token_id for token in result.tokens]


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_each_right_guess_brings_a_token_and_the_first_wrong_one_ends_that(sampling) -> None:
    first = guess(worker(PagedDecoder(VOCAB)), sampling, ())
    right = list(first)
    while len(right) < 4:
        right = guess(worker(PagedDecoder(VOCAB)), sampling, tuple(right))
    wrong = (right[1] + 1) % VOCAB

    assert guess(worker(PagedDecoder(VOCAB)), sampling, tuple(right[:3])) == right
    assert guess(worker(PagedDecoder(VOCAB)), sampling, (right[0], wrong, right[2])) == right[:2]
    assert guess(worker(PagedDecoder(VOCAB)), sampling, (wrong, right[1])) == right[:1]


def test_a_row_that_is_not_finite_ends_the_tokens_before_it() -> None:
    decoder = PagedDecoder(VOCAB)
    (first,) = guess(worker(decoder), GREEDY, ())
    decoder.poison = first

    assert guess(worker(decoder), GREEDY, (first, 7)) == [first]


def test_the_first_row_that_is_not_finite_fails_the_request() -> None:
    decoder = PagedDecoder(VOCAB)
    decoder.poison = 5
    chunk = ScheduledChunk(0, 0, 3, (0,), True, (8,))
    joined = NewRequest(0, 0, (1, 5), (), GREEDY, ())

    result = worker(decoder).execute(ScheduledBatch(0, (), (joined,), (chunk,)))

    assert (result.tokens, result.failed) == ((), ((0, NOT_FINITE),))


def test_guesses_for_a_request_with_logprobs_are_refused() -> None:
    with pytest.raises(ValueError, match="request 0 has guesses"):
        guess(worker(PagedDecoder(VOCAB)), SamplingParams(logprobs=1), (1,))


def test_guesses_beyond_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match=f"limit of {MAX_LEN}"):
        guess(worker(PagedDecoder(VOCAB)), GREEDY, (1,) * (MAX_LEN - 2))


def outputs(requests: list[Request], speculation: SpeculationConfig | None) -> tuple[int, int]:
    """Runs requests to their end; gives the number of steps and of accepted guesses."""
    kv = KVCacheManager(NUM_BLOCKS, BLOCK)
    config = SchedulerConfig(8, 64, MAX_LEN, 100, 10_000, speculation=speculation)
    scheduler, runner = Scheduler(config, kv), worker(ForgetfulDecoder(VOCAB))
    num_steps = num_accepted = 0
    for request in requests:
        scheduler.add(request)
        for _ in range(3):  # so that they overlap, but do not all come at once
            if (batch := scheduler.schedule()) is not None:
                told = scheduler.update(batch, runner.execute(batch), 0.001)
                num_accepted += sum(draft.num_accepted for draft in told.drafts)
                num_steps += 1
    while (batch := scheduler.schedule()) is not None:
        told = scheduler.update(batch, runner.execute(batch), 0.001)
        num_accepted += sum(draft.num_accepted for draft in told.drafts)
        num_steps += 1
        scheduler.check_integrity()
    assert kv.num_free_blocks == kv.num_blocks
    return num_steps, num_accepted


@pytest.mark.parametrize("num_requests", [1, 2, 4, 7])
@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        DRAWN,
        SamplingParams(temperature=0.3, top_k=4, seed=5, max_tokens=41, min_tokens=20),
        SamplingParams(temperature=0.0, max_tokens=50, stop_token_ids=frozenset(range(0, 97, 20))),
        SamplingParams(temperature=0.0, max_tokens=200),  # to the end of the context
    ],
    ids=["greedy", "drawn", "min_tokens", "stops", "context"],
)
def test_answers_are_the_same_with_and_without_guesses(sampling, num_requests) -> None:
    def requests() -> list[Request]:
        prompts = [tuple(np.random.default_rng(i).integers(0, VOCAB, 9 + i)) for i in range(7)]
        return [
            Request(i, "r", i % 2, tuple(map(int, prompts[i // 2])), sampling, 0.0)
            for i in range(num_requests)
        ]

    plain, guessed = requests(), requests()
    num_plain_steps, _ = outputs(plain, None)
    num_steps, num_accepted = outputs(guessed, SpeculationConfig(5))

    assert [r.output_token_ids for r in guessed] == [r.output_token_ids for r in plain]
    assert [r.finish_reason for r in guessed] == [r.finish_reason for r in plain]
    assert num_steps <= num_plain_steps
    if num_requests == 1 and sampling is GREEDY:
        assert num_accepted > 10
