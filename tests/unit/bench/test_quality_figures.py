"""The quality benchmark's arithmetic, on numbers small enough to check by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.bench.quality.figures import agreement, change, perplexity
from tests.bench.quality.report import BEGIN, END, write_docs
from tests.bench.quality.scoring import Scores, cut


def _scores(
    logprobs: list[list[float]],
    top_ids: list[list[int]] | None = None,
    continuations: list[list[int]] | None = None,
) -> Scores:
    return Scores(
        np.array(logprobs),
        np.array(top_ids or np.zeros_like(logprobs, dtype=np.int64)),
        None if continuations is None else np.array(continuations),
    )


def test_perplexity_is_the_number_of_equally_likely_tokens() -> None:
    assert perplexity(_scores([[-math.log(8)] * 3, [-math.log(8)] * 3])) == pytest.approx(8)


def test_a_change_is_of_the_perplexity() -> None:
    before = _scores([[-2.0, -1.0], [-3.0, -4.0]])
    after = _scores([[-2.1, -1.3], [-3.2, -4.2]])

    found = change(after, before)

    assert found.percent == pytest.approx((perplexity(after) / perplexity(before) - 1) * 100)


def test_what_all_windows_share_leaves_no_doubt() -> None:
    hard_and_easy = np.array([[-9.0, -8.0], [-1.0, -0.5], [-4.0, -4.0]])

    found = change(_scores((hard_and_easy - 0.01).tolist()), _scores(hard_and_easy.tolist()))

    expected = (math.exp(0.01) - 1) * 100
    assert (found.low, found.percent, found.high) == pytest.approx((expected,) * 3)


def test_the_interval_is_that_of_the_mean_over_windows() -> None:
    before = _scores([[-1.0], [-1.0], [-1.0], [-1.0]])
    after = _scores([[-1.0], [-1.2], [-1.0], [-1.2]])  # mean 0.1, standard error 0.2 / √12

    found = change(after, before)

    error = 1.95996 * 0.2 / math.sqrt(12)
    assert math.log1p(found.low / 100) == pytest.approx(0.1 - error, abs=1e-6)
    assert math.log1p(found.high / 100) == pytest.approx(0.1 + error, abs=1e-6)


def test_agreement_counts_places_and_the_tokens_before_continuations_part() -> None:
    one = _scores([[-1.0] * 4] * 3, [[1, 2, 3, 4]] * 3, [[7, 8], [7, 8], [7, 8]])
    other = _scores(
        [[-1.0] * 4] * 3, [[1, 2, 3, 9], [1, 2, 3, 4], [1, 9, 3, 9]], [[7, 8], [7, 9], [9, 8]]
    )

    found = agreement(other, one)

    assert found.same_top == pytest.approx(9 / 12 * 100)
    assert found.common_prefix == pytest.approx((2 + 1 + 0) / 3)
    assert found.same_continuation == pytest.approx(1 / 3 * 100)


def test_windows_are_whole_and_spread_over_the_text() -> None:
    tokens = list(range(45))

    assert cut(tokens, 10, None) == [tokens[i : i + 10] for i in (0, 10, 20, 30)]
    assert cut(tokens, 10, 2) == [tokens[0:10], tokens[20:30]]
    with pytest.raises(ValueError, match="45 tokens has no window of 46"):
        cut(tokens, 46, None)


def test_only_what_is_between_the_markers_of_a_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n{BEGIN}\nold\n{END}\nthe rest\n")

    write_docs(page, "new")

    assert page.read_text() == f"# Title\n{BEGIN}\n\nnew\n{END}\nthe rest\n"
    page.write_text("no markers")
    with pytest.raises(ValueError, match=r"page\.md has no"):
        write_docs(page, "new")
