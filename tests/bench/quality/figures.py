"""What scores say: perplexity, its change against a baseline, agreement of greedy choices.

Two models score the same windows, so their difference is taken window by window: what makes one
window harder than another cancels, and an error of a tenth of a percent shows where the perplexity
itself is uncertain by several percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tests.bench.quality.scoring import Scores

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


@dataclass(frozen=True, slots=True)
class Change:
    """Relative change of perplexity in percent, with its 95 % confidence interval.

    The interval is NaN where there is one window only.
    """

    percent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often two models choose the same; None where one of them continued nothing."""

    same_top: float  # percent of places where both have the same likeliest token
    common_prefix: float | None  # mean number of tokens until free continuations part
    same_continuation: float | None  # percent of continuations that never part


def perplexity(scores: Scores) -> float:
    """Exponential of the mean negative log-probability over all scored tokens."""
    return float(np.exp(-scores.token_logprobs.mean()))


def change(scores: Scores, baseline: Scores) -> Change:
    """How perplexity changes from the baseline's, paired by window.

    Windows count as independent, their mean as normally distributed.
    """
    per_window = (baseline.token_logprobs - scores.token_logprobs).mean(axis=1)
    mean, count = per_window.mean(), len(per_window)
    margin = _Z * per_window.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return Change(*(float(np.expm1(x) * 100) for x in (mean, mean - margin, mean + margin)))


def agreement(scores: Scores, baseline: Scores) -> Agreement:
    """Greedy choices of two models, over the text itself and in continuations of their own."""
    same_top = float((scores.top_ids == baseline.top_ids).mean() * 100)
    if scores.continuations is None or baseline.continuations is None:
        return Agreement(same_top, None, None)
    parted = scores.continuations != baseline.continuations
    length = parted.shape[1]
    prefixes = np.where(parted.any(axis=1), parted.argmax(axis=1), length)
    return Agreement(same_top, float(prefixes.mean()), float((prefixes == length).mean() * 100))
