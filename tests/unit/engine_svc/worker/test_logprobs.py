"""Reported log-probabilities: right, in a total order, and functions of their own row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine_svc.worker.logprobs import ROWS_PER_SLICE, no_logprobs, rows_logprobs, token_logprobs


def random_logits(rows: int, vocab_size: int, seed: int = 0) -> np.ndarray:
    normal = np.random.default_rng(seed).standard_normal((rows, vocab_size), dtype=np.float32)
    return normal * np.float32(4)


def test_values_are_those_of_log_softmax():
    logits = random_logits(8, 1000)
    expected = torch.log_softmax(torch.from_numpy(logits).double(), dim=-1)

    for row, values in zip(logits, expected, strict=True):
        entry = token_logprobs(row, 123, 5)
        tops = values.topk(5)
        assert entry.logprob == float(np.float32(values[123]))
        assert entry.top_token_ids == tuple(tops.indices.tolist())
        assert entry.top_logprobs == tuple(np.float32(tops.values).tolist())
        assert entry.rank == 1 + int((values > values[123]).sum())


def test_far_apart_logits_stay_finite():
    row = np.array([3e38, -3e38, 0.0], dtype=np.float32)

    entry = token_logprobs(row, 1, 3)

    assert entry.top_logprobs[0] == 0.0
    assert all(map(math.isfinite, (entry.logprob, *entry.top_logprobs)))


def test_equal_logits_rank_by_lower_id():
    row = np.array([1.0, 5.0, 5.0, 2.0, 5.0, 2.0], dtype=np.float32)

    entries = [token_logprobs(row, token_id, 5) for token_id in range(6)]

    assert entries[0].top_token_ids == (1, 2, 4, 3, 5)
    assert [entry.rank for entry in entries] == [6, 1, 2, 4, 3, 5]


def test_the_sampled_token_alone_when_no_top_is_asked_for():
    entry = token_logprobs(random_logits(1, 50)[0], 7, 0)

    assert entry.top_token_ids == ()
    assert entry.top_logprobs == ()
    assert entry.logprob < 0


def test_more_tops_than_tokens_gives_all_tokens():
    entry = token_logprobs(random_logits(1, 6)[0], 2, 20)

    assert sorted(entry.top_token_ids) == list(range(6))
    assert math.isclose(sum(map(math.exp, entry.top_logprobs)), 1, rel_tol=1e-6)


def test_a_row_gives_the_same_bits_in_any_batch():
    logits = random_logits(2 * ROWS_PER_SLICE + 3, 3001)
    token_ids = [(i * 37) % 3001 for i in range(len(logits))]

    together = rows_logprobs(logits, token_ids, 4)

    alone = [rows_logprobs(logits[i : i + 1].copy(), [t], 4) for i, t in enumerate(token_ids)]
    assert list(together) == [entries[0] for entries in alone]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_give_no_entries(value):
    logits = random_logits(ROWS_PER_SLICE + 2, 20)
    logits[ROWS_PER_SLICE + 1, 3] = value

    assert rows_logprobs(logits, [0] * len(logits), 1) is None


def test_no_rows_give_no_entries():
    assert rows_logprobs(random_logits(0, 20), [], 1) == ()


def test_the_first_prompt_position_has_as_many_places_as_others():
    entry = no_logprobs(3)

    assert math.isnan(entry.logprob)
    assert entry.rank == 0
    assert len(entry.top_token_ids) == len(entry.top_logprobs) == 3
