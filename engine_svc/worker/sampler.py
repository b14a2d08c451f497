"""Picks one token for each row of logits.

    logits ─► edits (logit_edits) ─► temperature ─► top-k ─► top-p ─► min-p ─► draw

A draw takes one uniform number (random_stream) and inverts the cumulative distribution
over the kept tokens in token-id order. Each row is treated by itself, in float64, with reductions
whose order its length alone decides: what a request samples depends on its logits, seed, choice and
position, and on nothing else in the batch.

Only rows that need it pay: greedy rows without edits share one arg-max, top-k and short nuclei cost
a partial sort, and a full sort is left to wide nuclei.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine_svc.worker.logit_edits import LogitEdits
from engine_svc.worker.random_stream import uniforms
from engine_svc.worker.ranking import ids_down_to, top_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from engine_svc.sampling_params import SamplingParams

# Below this temperature a request is greedy. Above, differences to the largest logit are divided,
# in float64, so nothing overflows and the likeliest token keeps weight 1.
GREEDY_TEMPERATURE = 1e-5

NOT_FINITE = "logits are not finite"
ALL_MASKED = (
    "no token can be sampled: allowed_token_ids, logit_bias and min_tokens leave none with a "
    "probability above zero"
)

OVERFLOW = "the penalties and the logit_bias make a logit overflow"

# Guesses at the size of a nucleus; most are within the first, and the rest pay for a full sort.
_NUCLEUS_GUESSES = (256, 4096)


class SamplingState:
    """What the sampler keeps of one request between steps."""

    def __init__(
        self,
        params: SamplingParams,
        choice: int,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
        vocab_size: int,
    ) -> None:
        self.params = params
        self.choice = choice
        self.greedy = params.temperature < GREEDY_TEMPERATURE or params.top_k == 1
        self.edits = LogitEdits(params, prompt_token_ids, output_token_ids, vocab_size)

    @property
    def num_outputs(self) -> int:
        """Tokens sampled so far, those of earlier attempts included; the next one's position."""
        return self.edits.num_outputs

    def append(self, token_id: int) -> None:
        """Takes note of a token that was sampled."""
        self.edits.append(token_id)


@dataclass(frozen=True, slots=True)
class Picks:
    """What came out of a batch, by row: a token, or the reason why there is none."""

    token_ids: dict[int, int]
    failures: dict[int, str]


def sample(logits: torch.Tensor, states: Sequence[SamplingState]) -> Picks:
    """Picks for float32 logits [num_rows, vocab_size], which stay as they are; one state a row."""
    picks = Picks({}, {})
    if not states:
        return picks
    finite, likeliest = _screen(logits)
    draws = _draws(states)
    for i, state in enumerate(states):
        if not finite[i]:
            picks.failures[i] = NOT_FINITE
        elif state.greedy and not state.edits.active:
            picks.token_ids[i] = likeliest[i]
        else:
            row = state.edits.apply(logits[i].cpu().numpy())
            best = row.max()
            if not np.isfinite(best):
                picks.failures[i] = ALL_MASKED if best == -np.inf else OVERFLOW
            else:
                picks.token_ids[i] = (
                    int(row.argmax()) if state.greedy else draw_token(row, state.params, draws[i])
                )
    return picks


def _screen(logits: torch.Tensor) -> tuple[list[bool], list[int]]:
    """For each row, whether it holds neither NaN nor infinity, and the lowest id of its maximum.

    On the CPU this is numpy's work: a parallel region of torch waits for a core that the decoder
    or a neighbour may have, for what takes a fraction of a millisecond.
    """
    if logits.device.type == "cpu":
        array = logits.numpy()
        return np.isfinite(array).all(axis=1).tolist(), array.argmax(axis=1).tolist()
    return torch.isfinite(logits).all(dim=1).tolist(), logits.argmax(dim=1).tolist()


def _draws(states: Sequence[SamplingState]) -> dict[int, float]:
    """A uniform number for each row that draws, by row."""
    rows = [i for i, state in enumerate(states) if not state.greedy]
    if not rows:
        return {}
    numbers = uniforms(
        [states[i].params.seed for i in rows],
        [states[i].choice for i in rows],
        [states[i].num_outputs for i in rows],
    )
    return dict(zip(rows, numbers.tolist(), strict=True))


def draw_token(row: npt.NDArray[np.float32], params: SamplingParams, draw: float) -> int:
    """The token at quantile `draw` of the distribution that params makes of a row.

    draw is in [0, 1), with 53 bits; row is [vocab_size], finite but for masked tokens at -inf.
    """
    ids, weights = _kept(row, params)
    if params.min_p > 0.0:
        weights = np.where(weights < params.min_p, 0.0, weights)  # the largest weight is 1
    sums = _running_sum(weights)
    # draw is at most 1 - 2⁻⁵³, so the product stays below the last sum in float64, too.
    at = int(np.searchsorted(sums, draw * sums[-1], side="right"))
    return at if ids is None else int(ids[at])


def _kept(
    row: npt.NDArray[np.float32], params: SamplingParams
) -> tuple[npt.NDArray[np.intp] | None, npt.NDArray[np.float64]]:
    """Ids that top-k and top-p keep, ascending (None for all), and their weights."""
    maximum, temperature = np.float64(row.max()), params.temperature
    top_k = params.top_k if 0 < params.top_k < row.size else 0
    if not top_k and params.top_p >= 1.0:
        return None, _weights(row, maximum, temperature)
    if top_k:
        values = top_values(row, top_k)
        if params.top_p < 1.0:
            sums = _running_sum(_weights(values, maximum, temperature))
            values = values[: _nucleus(sums, params.top_p * sums[-1])]
    else:
        wanted = params.top_p * _weights(row, maximum, temperature).sum()
        for guess in (*_NUCLEUS_GUESSES, row.size):
            values = top_values(row, guess)
            sums = _running_sum(_weights(values, maximum, temperature))
            if sums[-1] >= wanted:
                break
        values = values[: _nucleus(sums, wanted)]
    ids = ids_down_to(row, values[-1], values.size)
    return ids, _weights(row[ids], maximum, temperature)


def _weights(
    values: npt.NDArray[np.float32], maximum: np.float64, temperature: float
) -> npt.NDArray[np.float64]:
    """Probabilities relative to the likeliest token's."""
    scaled = values.astype(np.float64)
    scaled -= maximum
    scaled /= temperature
    return np.exp(scaled, out=scaled)


def _running_sum(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # torch's is strictly in order, as numpy's is, and several times as fast.
    sums: npt.NDArray[np.float64] = torch.from_numpy(weights).cumsum(0).numpy()
    return sums


def _nucleus(sums: npt.NDArray[np.float64], wanted: float) -> int:
    """Size of the smallest prefix whose sum reaches `wanted`; at least 1, at most all."""
    return min(int(np.searchsorted(sums, wanted, side="left")) + 1, sums.size)
