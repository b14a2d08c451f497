"""Sampling parameters against a plain definition of each, written here one token at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine_svc.sampling_params import SamplingParams
from engine_svc.worker.logit_edits import LogitEdits
from engine_svc.worker.random_stream import uniforms
from engine_svc.worker.sampler import (
    ALL_MASKED,
    NOT_FINITE,
    OVERFLOW,
    SamplingState,
    pick_inputs,
    sample,
)
from kernels.reference.sampling import pick_tokens

VOCAB = 300
PROMPT = (5, 5, 7, 250)
OUTPUT = (7, 9, 9, 9)


def random_logits(rows: int, vocab_size: int = VOCAB, seed: int = 0) -> np.ndarray:
    normal = np.random.default_rng(seed).standard_normal((rows, vocab_size), dtype=np.float32)
    return normal * np.float32(3)


def state(params: SamplingParams, output=OUTPUT, choice=0, prompt=PROMPT, vocab_size=VOCAB):
    return SamplingState(params, choice, prompt, output, vocab_size)


def pick(row: np.ndarray, params: SamplingParams, output=OUTPUT, choice=0, prompt=PROMPT) -> int:
    one = state(params, output, choice, prompt, row.size)
    return sample(row.reshape(1, -1), [one]).token_ids[0]


def reference_edits(row: list[float], params: SamplingParams, prompt, output) -> list[float]:
    logits = dict(enumerate(row))
    for token_id in logits:
        if params.allowed_token_ids and token_id not in params.allowed_token_ids:
            logits[token_id] = -math.inf
        logits[token_id] += params.logit_bias.get(token_id, 0.0)
        if token_id in prompt or token_id in output:
            factor = params.repetition_penalty
            logits[token_id] *= factor if logits[token_id] < 0 else 1 / factor
        logits[token_id] -= params.frequency_penalty * output.count(token_id)
        logits[token_id] -= params.presence_penalty * (token_id in output)
        if len(output) < params.min_tokens and token_id in params.masked_until_min_tokens:
            logits[token_id] = -math.inf
        for run in params.bad_words:
            if (*output, token_id)[-len(run) :] == run:
                logits[token_id] = -math.inf
    return list(logits.values())


def reference_pick(row: list[float], params: SamplingParams, prompt, output, draw: float) -> int:
    logits = reference_edits(row, params, prompt, output)
    order = sorted(range(len(logits)), key=lambda token_id: (-logits[token_id], token_id))
    if params.temperature == 0:
        return order[0]
    best = logits[order[0]]
    weight = [math.exp((logit - best) / params.temperature) for logit in logits]
    kept = order[: params.top_k] if params.top_k else order
    total, nucleus, mass = math.fsum(weight[i] for i in kept), [], []
    for token_id in kept:
        nucleus.append(token_id)
        mass.append(weight[token_id])
        if math.fsum(mass) >= params.top_p * total:
            break
    kept = sorted(i for i in nucleus if weight[i] >= params.min_p)
    target, sums = draw * math.fsum(weight[i] for i in kept), 0.0
    for token_id in kept:
        sums += weight[token_id]
        if sums > target:
            return token_id
    return kept[-1]


PARAMETERS = {
    "plain": SamplingParams(),
    "cool": SamplingParams(temperature=0.3),
    "hot": SamplingParams(temperature=2.0),
    "top-k": SamplingParams(top_k=5),
    "top-k-beyond": SamplingParams(top_k=VOCAB + 7),
    "top-p": SamplingParams(top_p=0.7),
    "top-p-wide": SamplingParams(top_p=0.999, temperature=3.0),
    "min-p": SamplingParams(min_p=0.1),
    "repetition": SamplingParams(repetition_penalty=1.8),
    "repetition-below-1": SamplingParams(repetition_penalty=0.5),
    "frequency": SamplingParams(frequency_penalty=1.5),
    "presence": SamplingParams(presence_penalty=-2.0),
    "bias": SamplingParams(logit_bias={3: 4.0, 7: -100.0, 299: 2.5}),
    "allowed": SamplingParams(allowed_token_ids=(4, 8, 15, 16, 23, 42)),
    "min-tokens": SamplingParams(
        min_tokens=9, masked_until_min_tokens=frozenset({1, 2}), logit_bias={2: 20.0, 3: 18.0}
    ),
    "bad-words": SamplingParams(
        bad_words=((9, 9, 30), (9, 31), (7, 32), (33,), (7, 9, 9, 9, 34), (9, VOCAB + 1)),
        logit_bias=dict.fromkeys(range(30, 37), 4.0),
    ),
    "everything": SamplingParams(
        temperature=0.9,
        top_k=40,
        top_p=0.9,
        min_p=0.02,
        repetition_penalty=1.3,
        frequency_penalty=0.5,
        presence_penalty=0.4,
        logit_bias={9: 3.0, 250: 2.0},
        allowed_token_ids=tuple(range(0, VOCAB, 2)),
        bad_words=((9, 250), (16,), (20, 24)),
    ),
}


@pytest.mark.parametrize("greedy", [False, True], ids=["drawn", "greedy"])
@pytest.mark.parametrize("name", PARAMETERS)
def test_each_parameter_does_what_its_definition_says(name, greedy):
    params = replace(PARAMETERS[name], seed=99)
    if greedy:
        params = replace(params, temperature=0.0)
    logits = random_logits(60, seed=len(name))
    states = [state(replace(params, seed=seed)) for seed in range(60)]

    picks = sample(logits, states)

    draws = uniforms(range(60), [0] * 60, [len(OUTPUT)] * 60)
    assert picks.failures == {}
    assert picks.token_ids == {
        i: reference_pick(row, params, PROMPT, OUTPUT, draws[i])
        for i, row in enumerate(logits.tolist())
    }


def test_sampling_leaves_the_logits_as_they_are():
    logits = random_logits(len(PARAMETERS))
    before = logits.copy()

    sample(logits, [state(params) for params in PARAMETERS.values()])

    assert np.array_equal(logits, before)


def test_plain_rows_are_picked_as_they_are_sampled():
    states = [
        one
        for name in PARAMETERS
        for seed in range(20)
        for temperature in (0.0, 0.7, 1.0)
        if (one := state(replace(PARAMETERS[name], seed=seed, temperature=temperature))).plain
    ]
    logits = random_logits(len(states))

    picks = pick_inputs(range(len(states)), states, [0] * len(states))

    assert len(states) == 8 * 60  # those without edits
    assert picks.rows.tolist() == list(range(len(states)))
    assert dict(enumerate(pick_tokens(logits, picks).tolist())) == sample(logits, states).token_ids


@pytest.mark.parametrize(
    ("params", "plain"),
    [
        (SamplingParams(), True),
        (SamplingParams(logprobs=0), False),
        (SamplingParams(presence_penalty=0.1), False),
        (SamplingParams(min_tokens=4, masked_until_min_tokens=frozenset({1})), True),
        (SamplingParams(min_tokens=5, masked_until_min_tokens=frozenset({1})), False),
        (SamplingParams(bad_words=((9, 5),)), True),
        (SamplingParams(bad_words=((9, 5), (3, 4, 5))), False),
    ],
)
def test_a_row_is_plain_with_neither_edits_nor_logprobs(params, plain):
    assert state(params, output=(1, 2, 3, 4)).plain is plain


@pytest.mark.parametrize("penalty", [0.7, 1.1, 1.8])
def test_repetition_penalty_equals_that_of_transformers(penalty):
    logits = random_logits(1)
    ids = torch.tensor([[*PROMPT, *OUTPUT]])

    edits = LogitEdits(SamplingParams(repetition_penalty=penalty), PROMPT, OUTPUT, VOCAB)

    expected = RepetitionPenaltyLogitsProcessor(penalty)(ids, torch.from_numpy(logits))
    assert edits.apply(logits[0]).tolist() == expected[0].tolist()


@pytest.mark.parametrize(
    "output", [(), (1,), (1, 2), (1, 2, 3), (2, 2, 3, 1, 2, 3), (3, 3)], ids=str
)
def test_bad_words_equal_those_of_transformers(output):
    runs = [[8], [1, 9], [1, 2, 10], [2, 3, 11], [3, 3, 12], [1, 2, 3, 1, 13], [2, 14], [3, 3]]
    logits = random_logits(1)
    ids = torch.tensor([output], dtype=torch.long)

    edits = LogitEdits(SamplingParams(bad_words=tuple(map(tuple, runs))), PROMPT, output, VOCAB)

    expected = NoBadWordsLogitsProcessor(runs)(ids, torch.from_numpy(logits))
    assert edits.apply(logits[0]).tolist() == expected[0].tolist()


def test_a_bad_word_that_began_in_the_prompt_is_none():
    params = SamplingParams(bad_words=((5, 7, 250, 9),))

    assert not LogitEdits(params, (5, 7, 250), (), VOCAB).active
    assert LogitEdits(params, (), (5, 7, 250), VOCAB).active


@pytest.mark.parametrize(
    ("params", "warper"),
    [
        (SamplingParams(top_k=7), TopKLogitsWarper(7)),
        (SamplingParams(top_p=0.6), TopPLogitsWarper(0.6)),
        (SamplingParams(top_p=0.99), TopPLogitsWarper(0.99)),
        (SamplingParams(min_p=0.2), MinPLogitsWarper(0.2)),
    ],
    ids=["top_k", "top_p", "wide top_p", "min_p"],
)
def test_what_is_kept_equals_that_of_transformers(params, warper):
    logits = random_logits(1, 40)
    many = 3000

    drawn = sample(
        np.repeat(logits, many, axis=0),
        [state(replace(params, seed=seed), vocab_size=40) for seed in range(many)],
    )

    logits = torch.from_numpy(logits)
    kept = warper(torch.tensor([[0]]), logits.clone()).isfinite()[0]
    assert set(drawn.token_ids.values()) <= set(kept.nonzero().flatten().tolist())
    likely = (torch.softmax(logits[0], 0) > 0.005) & kept  # all of these come up in 3000 draws
    assert set(likely.nonzero().flatten().tolist()) <= set(drawn.token_ids.values())


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=1),
        SamplingParams(top_p=1e-6),
        SamplingParams(temperature=0.0, frequency_penalty=0.5),
    ],
    ids=["greedy", "top_k", "top_p", "penalised"],
)
def test_equal_logits_give_the_lower_id(params):
    row = np.zeros(VOCAB, dtype=np.float32)
    row[[40, 30, 99]] = 5.0

    assert pick(row, params) == 30


def test_ties_at_the_border_of_top_k_keep_lower_ids():
    row = np.zeros(VOCAB, dtype=np.float32)
    row[200] = 1.0

    tokens = {pick(row, SamplingParams(top_k=3, seed=seed)) for seed in range(200)}

    assert tokens == {0, 1, 200}


@pytest.mark.parametrize("exponent", range(-12, -1))
def test_a_tiny_temperature_is_greedy(exponent):
    # The best is ahead by 1, which is a hundred times the largest temperature here.
    logits = random_logits(20).round()
    logits[:, 17] = logits.max(axis=1) + 1.0
    best = logits.argmax(axis=1).tolist()

    tokens = [pick(row, SamplingParams(temperature=10.0**exponent, seed=3)) for row in logits]

    assert tokens == best


def test_a_tiny_temperature_survives_huge_logits():
    row = np.array([1e38, -1e38, 9e37], dtype=np.float32)

    assert pick(row, SamplingParams(temperature=1e-5), output=(), prompt=()) == 0


def test_temperature_just_above_the_threshold_is_exact():
    # One step of temperature apart, the second token weighs 1/e.
    row = np.array([0.0, -(2.0**-16), -50.0], dtype=np.float32)
    params = SamplingParams(temperature=2.0**-16)

    draws = [pick(row, replace(params, seed=seed), (), 0, ()) for seed in range(4000)]

    share = draws.count(1) / len(draws)
    assert draws.count(2) == 0
    assert abs(share - 1 / (1 + math.e)) < 0.02


def test_min_tokens_wins_over_a_bias_until_enough_tokens_exist():
    params = SamplingParams(
        temperature=0.0,
        min_tokens=5,
        logit_bias={8: 100.0},
        masked_until_min_tokens=frozenset({2, 8}),
    )
    row = random_logits(1)[0]

    tokens = [pick(row, params, output=(0,) * n) for n in range(7)]

    assert 8 not in tokens[:5]
    assert 2 not in tokens[:5]
    assert tokens[5:] == [8, 8]


def test_end_tokens_that_the_model_lacks_are_no_trouble():
    params = SamplingParams(
        min_tokens=5,
        masked_until_min_tokens=frozenset({2, VOCAB + 3}),
        repetition_penalty=1.5,
        frequency_penalty=0.5,
    )

    assert pick(random_logits(1)[0], params, prompt=(1, VOCAB + 9)) < VOCAB


def test_frequencies_follow_the_distribution():
    # 12,000 positions of one request; the 12 tokens' counts against their probabilities.
    count, row = 12_000, random_logits(1, 12)[0] / 2
    one = state(SamplingParams(temperature=1.3, seed=2024), output=(), vocab_size=12)
    drawn = np.zeros(12)

    for _ in range(count):
        token_id = sample(row.reshape(1, -1), [one]).token_ids[0]
        one.append(token_id)
        drawn[token_id] += 1

    expected = torch.softmax(torch.from_numpy(row).double() / 1.3, 0).numpy() * count
    assert ((drawn - expected) ** 2 / expected).sum() < 31.3  # 99.9 % of 11 degrees of freedom


def test_counting_token_by_token_equals_counting_at_once():
    params = SamplingParams(
        repetition_penalty=1.5,
        frequency_penalty=0.5,
        presence_penalty=0.25,
        bad_words=((199, 8, 4), (8, 5), (7,)),
    )
    row, output = random_logits(1)[0], [3, 3, 8, 3, *range(100, 200), 8]
    step_by_step = LogitEdits(params, PROMPT, (), VOCAB)

    for token_id in output:
        step_by_step.append(token_id)

    at_once = LogitEdits(params, PROMPT, output, VOCAB)
    assert step_by_step.apply(row).tolist() == at_once.apply(row).tolist()


def mixed_states(count: int, vocab_size: int) -> list[SamplingState]:
    names = list(PARAMETERS.values())
    return [
        state(
            replace(names[i % len(names)], seed=i, temperature=(0.0, 0.7, 1.0)[i % 3]),
            output=OUTPUT * (i % 4),
            choice=i % 2,
            vocab_size=vocab_size,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 33, 80])
def test_a_row_samples_the_same_in_any_batch(count):
    logits, states = random_logits(80, 3001, seed=count), mixed_states(80, 3001)
    alone = [sample(logits[i : i + 1].copy(), [states[i]]).token_ids[0] for i in range(80)]
    rows = np.random.default_rng(count).permutation(80)[:count].tolist()

    together = sample(logits[rows], [states[i] for i in rows])

    assert together.token_ids == {at: alone[i] for at, i in enumerate(rows)}


def test_choices_and_seeds_and_positions_draw_apart():
    row = random_logits(1)[0] / 10

    by_choice = [pick(row, SamplingParams(seed=1), choice=choice) for choice in range(8)]
    by_seed = [pick(row, SamplingParams(seed=seed)) for seed in range(8)]
    by_position = [pick(row, SamplingParams(seed=1), output=(0,) * n) for n in range(8)]

    assert all(len(set(tokens)) > 4 for tokens in (by_choice, by_seed, by_position))


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_resumed_request_goes_on_as_if_undisturbed(name):
    params, logits = replace(PARAMETERS[name], seed=77), random_logits(24)

    def generate(start: int, output: tuple[int, ...]) -> list[int]:
        one, tokens = state(params, output), []
        for i in range(start, 24):
            tokens.append(sample(logits[i : i + 1], [one]).token_ids[0])
            one.append(tokens[-1])
        return tokens

    whole = generate(0, ())

    for cut in (1, 8, 9, 23):
        assert generate(cut, tuple(whole[:cut])) == whole[cut:]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_fail_their_row_alone(value, temperature):
    logits = random_logits(3)
    states = [state(SamplingParams(temperature=temperature, seed=i)) for i in range(3)]
    healthy = sample(logits, states).token_ids
    logits[1, 200] = value

    picks = sample(logits, states)

    assert picks.failures == {1: NOT_FINITE}
    assert picks.token_ids == {0: healthy[0], 2: healthy[2]}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_every_token_masked_fails_and_says_why(temperature):
    params = SamplingParams(
        temperature=temperature,
        allowed_token_ids=(2,),
        min_tokens=9,
        masked_until_min_tokens=frozenset({2}),
    )

    picks = sample(random_logits(2), [state(params), state(SamplingParams())])

    assert picks.failures == {0: ALL_MASKED}
    assert list(picks.token_ids) == [1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_penalty_beyond_float32_fails_its_request_alone(temperature):
    params = SamplingParams(temperature=temperature, repetition_penalty=1e-300)

    picks = sample(np.abs(random_logits(2)), [state(params), state(SamplingParams())])

    assert picks.failures == {0: OVERFLOW}
    assert list(picks.token_ids) == [1]


def test_no_rows_no_picks():
    assert sample(random_logits(0), []).token_ids == {}
