"""Grammars on the worker under the real scheduler: nothing that happens on the way shows."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from engine_svc.constraints.compiler import GrammarCompiler
from engine_svc.constraints.constraint import Constraint
from engine_svc.sampling_params import SamplingParams
from engine_svc.scheduling.kv_cache_manager import KVCacheManager
from engine_svc.scheduling.request import FinishReason, Request
from engine_svc.scheduling.scheduler import Scheduler, SchedulerConfig
from engine_svc.speculation.config import SpeculationConfig
from engine_svc.worker.model_runner import ModelRunner
from engine_svc.worker.sampler import ALL_MASKED
from tests.support.byte_tokenizer import END, VOCAB_SIZE, ids_of, text_of, write_byte_tokenizer
from tests.support.paged_decoder import PagedDecoder

VOCAB = VOCAB_SIZE + 30
BLOCK, MAX_LEN = 4, 120
SCHEMA = {
    "type": "object",
    "properties": {
        "ab": {"type": "integer", "minimum": 0, "maximum": 9999},
        "list": {"type": "array", "items": {"enum": ["true", "abc"]}, "maxItems": 3},
        "on": {"type": "boolean"},
    },
    "required": ["ab", "list", "on"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars(tmp_path_factory):
    """Grammars by kind and text."""
    directory = write_byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    compiler = GrammarCompiler(directory, VOCAB, frozenset({END}))
    yield lambda kind, text: asyncio.run(compiler.compile(Constraint(kind, text)))
    compiler.close()


@pytest.fixture(scope="module")
def sampling(grammars):
    return SamplingParams(
        temperature=0.9,
        max_tokens=80,
        eos_token_ids=frozenset({END}),
        grammar=grammars("json_schema", json.dumps(SCHEMA)),
    )


def requests_of(sampling: SamplingParams, count: int = 6, output=()) -> list[Request]:
    prompts = [tuple(np.random.default_rng(i).integers(0, 256, 5 + i).tolist()) for i in range(9)]
    return [
        Request(i, "r", i % 2, prompts[i], replace(sampling, seed=i), 0.0, list(output))
        for i in range(count)
    ]


def run(requests: list[Request], *, num_blocks=400, speculation=None, batched=64) -> dict[str, int]:
    """Runs requests to their end; counts what happened, and gives failures by their message."""
    kv = KVCacheManager(num_blocks, BLOCK)
    config = SchedulerConfig(8, batched, MAX_LEN, 100, 10_000, speculation=speculation)
    scheduler = Scheduler(config, kv)
    decoder = PagedDecoder(VOCAB)
    decoder.allocate_kv(num_blocks, BLOCK)
    runner = ModelRunner(
        decoder,
        vocab_size=VOCAB,
        block_size=BLOCK,
        max_num_seqs=8,
        max_model_len=MAX_LEN,
        max_num_batched_tokens=batched,
    )
    seen = {"preempted": 0, "accepted": 0}
    for request in requests:
        scheduler.add(request)
    while (batch := scheduler.schedule()) is not None:
        told = scheduler.update(batch, runner.execute(batch), 0.001)
        seen["preempted"] += len(told.preempted)
        seen["accepted"] += sum(draft.num_accepted for draft in told.drafts)
        for failed in told.failed:
            seen[failed.message] = seen.get(failed.message, 0) + 1
        scheduler.check_integrity()
    assert kv.num_free_blocks == num_blocks
    return seen


def outputs(requests: list[Request]) -> list[list[int]]:
    return [request.output_token_ids for request in requests]


@pytest.fixture(scope="module")
def expected(sampling) -> list[list[int]]:
    """Each output alone."""
    requests = requests_of(sampling)
    for request in requests:
        run([request])
        assert request.finish_reason is FinishReason.STOP
        value = json.loads(text_of(request.output_token_ids))
        assert value.keys() == {"ab", "list", "on"}
    return outputs(requests)


@pytest.mark.parametrize(
    "how",
    [{}, {"batched": 7}, {"num_blocks": 40}, {"speculation": SpeculationConfig(4)}],
    ids=["together", "in chunks", "preempted", "guessed"],
)
def test_outputs_are_those_of_each_alone(sampling, expected, how) -> None:
    requests = requests_of(sampling)

    seen = run(requests, **how)

    assert outputs(requests) == expected
    assert (seen["preempted"] > 0) == ("num_blocks" in how)


def test_guesses_that_the_grammar_forces_are_accepted(grammars) -> None:
    sampling = SamplingParams(
        temperature=1.0, max_tokens=80, grammar=grammars("regex", "(abcd-){12}end")
    )
    plain, guessed = requests_of(sampling, 2), requests_of(sampling, 2)
    run(plain)

    seen = run(guessed, speculation=SpeculationConfig(4))

    assert outputs(guessed) == outputs(plain)
    assert seen["accepted"] > 20
    assert text_of(guessed[0].output_token_ids) == "abcd-" * 12 + "end"


def test_a_row_with_logprobs_or_edits_is_picked_as_any_other(sampling, expected) -> None:
    for change in ({"logprobs": 2}, {"logit_bias": {END + 1: 50.0}}):
        requests = requests_of(replace(sampling, **change))
        run(requests)
        assert outputs(requests) == expected


def test_an_output_goes_on_after_any_of_its_tokens(sampling, expected) -> None:
    for cut in range(1, len(expected[0]), 5):
        (request,) = requests_of(sampling, 1, expected[0][:cut])
        run([request])
        assert request.output_token_ids == expected[0]


@pytest.mark.parametrize(
    "change",
    [{"eos_token_ids": frozenset()}, {"min_tokens": 60, "masked_until_min_tokens": {END}}],
    ids=["ignore_eos", "min_tokens"],
)
def test_a_complete_output_ends_whatever_else_is_asked(sampling, expected, change) -> None:
    requests = requests_of(replace(sampling, **change))

    run(requests)

    assert outputs(requests) == expected
    assert {request.finish_reason for request in requests} == {FinishReason.STOP}


def test_an_output_that_may_end_does_not_before_min_tokens(grammars) -> None:
    sampling = SamplingParams(
        temperature=1.0,
        max_tokens=30,
        min_tokens=25,
        masked_until_min_tokens=frozenset({END}),
        eos_token_ids=frozenset({END}),
        grammar=grammars("regex", "[ab]*"),
    )
    requests = requests_of(sampling)

    run(requests)

    for request in requests:
        assert len(request.output_token_ids) >= 25
        assert set(text_of(request.output_token_ids)) <= set("abc")


def test_a_stop_token_ends_an_output_that_its_grammar_would_let_go_on(grammars) -> None:
    (stop,) = ids_of("b")
    sampling = SamplingParams(
        temperature=1.0,
        max_tokens=60,
        stop_token_ids=frozenset({stop}),
        grammar=grammars("regex", "[ab]{50}"),
    )
    (request,) = requests_of(sampling, 1)

    run([request])

    assert request.finish_reason is FinishReason.STOP
    assert request.output_token_ids[-1] == stop


def test_what_leaves_a_grammar_no_token_fails_the_request_and_no_other(sampling, expected) -> None:
    allowed = tuple(ids_of("xyz"))
    requests = requests_of(sampling)
    requests[2].sampling = replace(requests[2].sampling, allowed_token_ids=allowed)

    seen = run(requests)

    assert seen[ALL_MASKED] == 1
    assert requests[2].finish_reason is FinishReason.FAILED
    assert [o for i, o in enumerate(outputs(requests)) if i != 2] == [
        o for i, o in enumerate(expected) if i != 2
    ]


@pytest.mark.parametrize("change", [{}, {"logprobs": 1}], ids=["picked", "sampled"])
def test_an_output_that_left_its_grammar_fails(sampling, change) -> None:
    (request,) = requests_of(replace(sampling, **change), 1, ids_of("{x"))

    seen = run([request])

    assert request.finish_reason is FinishReason.FAILED
    assert request.output_token_ids == ids_of("{x")
    assert any("grammar" in message for message in seen)
