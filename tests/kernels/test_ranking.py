"""The order of tokens by likelihood is total, so that equal logits leave nothing to chance."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.reference.ranking import likeliest_ids, rank, top_values


@pytest.mark.parametrize("count", [1, 2, 20, 256, 257, 999, 1000, 5000])
def test_the_likeliest_are_those_of_a_stable_sort(count):
    # Whole numbers, so that there are many ties at every border.
    row = np.random.default_rng(count).integers(-9, 9, 5000).astype(np.float32)

    assert likeliest_ids(row, count).tolist() == np.argsort(-row, kind="stable")[:count].tolist()
    assert top_values(row, count).tolist() == np.sort(row)[::-1][:count].tolist()


def test_a_rank_is_the_place_in_that_order():
    row = np.random.default_rng(0).integers(-9, 9, 500).astype(np.float32)

    order = likeliest_ids(row, 500).tolist()

    assert [rank(row, token_id) for token_id in order] == list(range(1, 501))
