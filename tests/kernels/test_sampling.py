"""Picks at the edges of their definition; tests of the engine's sampler cover each parameter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernels.backend import NOT_FINITE
from kernels.reference.sampling import draw_token, pick_tokens
from tests.support.picks import picks_of

ALL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def logits_of(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize(("draw", "token_id"), [(0.0, 1), (0.5, 3), (1 - 2**-53, 3)])
def test_draws_at_the_ends_never_hit_a_masked_token(draw, token_id):
    (row,) = logits_of([-math.inf, 1.0, -math.inf, 1.0, -math.inf])

    assert draw_token(row, draw, **ALL) == token_id


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [0, 1, 1, 2, 2, 2, 2, 3, 3, 3]),
        ({"top_k": 2}, [2, 2, 2, 2, 2, 2, 3, 3, 3, 3]),
        ({"top_p": 0.4}, [2] * 10),
        ({"min_p": 0.45}, [1, 1, 2, 2, 2, 2, 2, 3, 3, 3]),
        ({"temperature": 0.5}, [1, 1, 2, 2, 2, 2, 2, 3, 3, 3]),
    ],
    ids=["all", "top_k", "top_p", "min_p", "temperature"],
)
def test_a_draw_is_a_quantile_of_what_is_kept(changed, expected):
    (row,) = np.log(logits_of([0.1, 0.2, 0.4, 0.3]))  # at temperature ½: 1, 4, 16 and 9 of 30

    tokens = [draw_token(row, (i + 0.5) / 10, **(ALL | changed)) for i in range(10)]

    assert tokens == expected


def test_each_row_has_parameters_of_its_own():
    logits = np.log(logits_of(*[[0.1, 0.2, 0.4, 0.3]] * 4))
    picks = picks_of(
        range(4), temperature=[0.0, 1.0, 1.0, 1.0], top_k=[0, 0, 2, 0], draw=[0.9, 0.05, 0.9, 0.05]
    )

    tokens = pick_tokens(logits, picks)

    assert tokens.dtype == np.int32
    assert tokens.tolist() == [2, 0, 3, 0]


def test_equal_logits_give_the_lower_id():
    assert pick_tokens(logits_of([1.0, 5.0, 5.0]), picks_of([0])).tolist() == [1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_has_no_token(value, temperature):
    logits = logits_of([1.0, 2.0, 0.0], [1.0, 2.0, value], [9.0, 2.0, 0.0])

    tokens = pick_tokens(logits, picks_of(range(3), temperature=temperature, top_k=1))

    assert tokens.tolist() == [1, NOT_FINITE, 0]


def test_no_rows_no_tokens():
    assert pick_tokens(np.zeros((0, 5), dtype=np.float32), picks_of()).tolist() == []
