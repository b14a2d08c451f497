"""The local executor runs a worker; the scripted one, for other tests, follows the same rules."""

from __future__ import annotations

import threading

import pytest

from engine_svc.batch import NewRequest, ScheduledBatch, ScheduledChunk
from engine_svc.sampling_params import SamplingParams
from engine_svc.worker.executor import Executor, LocalExecutor
from engine_svc.worker.model_runner import ModelRunner
from tests.support.paged_decoder import PagedDecoder
from tests.support.scripted_executor import ScriptedExecutor, mixed_token, script


def local_executor() -> LocalExecutor:
    decoder = PagedDecoder(vocab_size=1000)
    decoder.allocate_kv(num_blocks=16, block_size=4)
    return LocalExecutor(
        ModelRunner(
            decoder,
            vocab_size=1000,
            block_size=4,
            max_num_seqs=4,
            max_model_len=64,
            max_num_batched_tokens=64,
        )
    )


def plans(sampling: SamplingParams) -> list[ScheduledBatch]:
    """A prompt of six in two chunks, preempted after the first; two tokens; then it leaves."""
    prompt = (5, 6, 7, 8, 9, 10)
    joins = NewRequest(1, 0, prompt, (), sampling, ())
    joins_again = NewRequest(1, 0, prompt, (), sampling, (3,))
    return [
        ScheduledBatch(0, (), (joins,), (ScheduledChunk(1, 0, 4, (3,), samples=False),)),
        ScheduledBatch(1, (1,), (), ()),
        ScheduledBatch(2, (), (joins_again,), (ScheduledChunk(1, 3, 3, (9,), samples=True),)),
        ScheduledBatch(3, (), (), (ScheduledChunk(1, 6, 1, (), samples=True),)),
        ScheduledBatch(4, (1,), (), ()),
    ]


def first_step(key: int = 1) -> ScheduledBatch:
    request = NewRequest(key, 0, (5, 6), (), SamplingParams(), ())
    return ScheduledBatch(0, (), (request,), (ScheduledChunk(key, 0, 2, (0,), samples=True),))


@pytest.mark.parametrize("make", [local_executor, lambda: ScriptedExecutor(block_size=4)])
def test_every_executor_reports_the_same_keys_and_positions(make):
    executor: Executor = make()

    results = [
        executor.submit(plan) for plan in plans(SamplingParams(prompt_logprobs=2, logprobs=1))
    ]

    assert [[token.key for token in result.tokens] for result in results] == [[], [], [1], [1], []]
    parts = [part for result in results for part in result.prompt_logprobs]
    assert [(part.key, part.first_position, len(part.entries)) for part in parts] == [
        (1, 0, 5),
        (1, 5, 1),
    ]
    assert {len(entry.top_token_ids) for part in parts for entry in part.entries} == {2}
    assert all(
        len(token.logprobs.top_token_ids) == 1 for result in results for token in result.tokens
    )


def test_a_closed_local_executor_takes_no_step():
    executor = local_executor()
    executor.close()
    executor.close()

    with pytest.raises(RuntimeError, match="the executor is closed"):
        executor.submit(first_step())


def test_scripted_tokens_follow_from_the_tokens_before():
    executor = ScriptedExecutor(block_size=4)

    results = [executor.submit(plan) for plan in plans(SamplingParams())]

    prompt = (5, 6, 7, 8, 9, 10)
    first = mixed_token(prompt, ())
    assert results[2].tokens[0].token_id == first
    assert results[3].tokens[0].token_id == mixed_token(prompt, (first,))


def test_a_script_is_read_in_turn():
    executor = ScriptedExecutor(script(7, 8), block_size=4)

    results = [executor.submit(plan) for plan in plans(SamplingParams())]

    assert [token.token_id for result in results for token in result.tokens] == [7, 8]


def test_a_held_step_waits_for_its_release():
    executor = ScriptedExecutor()
    executor.hold()
    results = []
    thread = threading.Thread(target=lambda: results.append(executor.submit(first_step())))

    thread.start()
    executor.wait_until_held()
    held = list(results)
    executor.release()
    thread.join()

    assert held == []
    assert len(results[0].tokens) == 1


def test_a_scripted_failure_names_its_request():
    executor = ScriptedExecutor()
    executor.fail(1, "broken")

    result = executor.submit(first_step())

    assert result.tokens == ()
    assert result.failed == ((1, "broken"),)


def test_a_scripted_error_is_raised_once():
    executor = ScriptedExecutor()
    executor.raise_next(OSError("device lost"))

    with pytest.raises(OSError, match="device lost"):
        executor.submit(first_step(1))
    assert len(executor.submit(first_step(2)).tokens) == 1


@pytest.mark.parametrize(
    "chunk",
    [
        ScheduledChunk(1, 0, 3, (0,), samples=False),  # beyond the prompt
        ScheduledChunk(1, 0, 2, (), samples=True),  # no block
        ScheduledChunk(1, 0, 1, (0,), samples=True),  # samples too early
        ScheduledChunk(1, 1, 1, (0,), samples=True),  # skips a token
    ],
)
def test_a_wrong_plan_is_caught(chunk):
    request = NewRequest(1, 0, (5, 6), (), SamplingParams(), ())

    with pytest.raises(AssertionError):
        ScriptedExecutor().submit(ScheduledBatch(0, (), (request,), (chunk,)))


def test_a_step_that_awaits_a_token_which_the_one_before_does_not_pick_is_refused():
    executor = local_executor()
    request = NewRequest(1, 0, (5, 6, 7), (), SamplingParams(), ())
    chunk = ScheduledChunk(1, 0, 2, (0,), samples=False)
    executor.submit(ScheduledBatch(0, (), (request,), (chunk,)))
    awaits = ScheduledChunk(1, 2, 2, (), samples=True, awaits=True)

    with pytest.raises(ValueError, match="request 1 awaits a token that it needs to know"):
        executor.submit(ScheduledBatch(1, (), (), (awaits,)))
