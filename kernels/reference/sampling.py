"""Picks one token from a row of logits: the definition of sampling, in numpy alone.

    row ─► temperature ─► top-k ─► top-p ─► min-p ─► draw

A draw takes one uniform number and inverts the cumulative distribution over the kept tokens in
token-id order. Each row is treated by itself, in float64, with sums that run in order: what is
picked depends on the row and its own parameters, and on nothing else in the batch.

Only rows that need it pay: rows at temperature 0 share one arg-max, top-k and short nuclei cost a
partial sort, and a full sort is left to wide nuclei.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels.backend import NOT_FINITE
from kernels.reference.ranking import ids_down_to, top_values

if TYPE_CHECKING:
    import numpy.typing as npt

    from kernels.backend import Float32s, Float64s, Int32s, PickInputs, UInt32s

# Guesses at the size of a nucleus; most are within the first, and the rest pay for a full sort.
_NUCLEUS_GUESSES = (256, 4096)


def pick_tokens(logits: Float32s, picks: PickInputs) -> Int32s:
    """A token for each row of logits [num_picks, vocab_size]; see `PickInputs`.

    NOT_FINITE stands where a row has a NaN or an infinity among the logits that its mask allows, or
    its mask allows none.
    """
    finite = np.asarray(np.isfinite(logits).all(axis=1))
    if picks.masks is not None and picks.mask_of is not None:
        logits = logits.copy()
        for i in np.flatnonzero(picks.mask_of >= 0).tolist():
            allowed = mask_logits(logits[i], picks.masks[picks.mask_of[i]])
            finite[i] = allowed.any() and np.isfinite(logits[i][allowed]).all()
    tokens = np.where(finite, logits.argmax(axis=1), NOT_FINITE).astype(np.int32)
    for i in np.flatnonzero(finite & (picks.temperature > 0.0)).tolist():
        tokens[i] = draw_token(
            logits[i],
            float(picks.draw[i]),
            temperature=float(picks.temperature[i]),
            top_k=int(picks.top_k[i]),
            top_p=float(picks.top_p[i]),
            min_p=float(picks.min_p[i]),
        )
    return tokens


def mask_logits(row: Float32s, mask: UInt32s) -> npt.NDArray[np.bool_]:
    """Sets logits [vocab_size] to -inf where the mask has no bit; returns where it has one."""
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little", count=row.size).view(np.bool_)
    row[~allowed] = -np.inf
    return allowed


def draw_token(
    row: Float32s, draw: float, *, temperature: float, top_k: int, top_p: float, min_p: float
) -> int:
    """The token at quantile `draw` of the distribution that the parameters make of a row.

    row is [vocab_size], finite but for masked tokens at -inf; draw is in [0, 1), with 53 bits;
    temperature is above 0; top_k is 0 for all.
    """
    ids, weights = _kept(row, temperature, top_k, top_p)
    if min_p > 0.0:
        weights = np.where(weights < min_p, 0.0, weights)  # the largest weight is 1
    sums = np.cumsum(weights)
    # draw is at most 1 - 2⁻⁵³, so the product stays below the last sum in float64, too.
    at = int(np.searchsorted(sums, draw * sums[-1], side="right"))
    return at if ids is None else int(ids[at])


def _kept(
    row: Float32s, temperature: float, top_k: int, top_p: float
) -> tuple[npt.NDArray[np.intp] | None, Float64s]:
    """Ids that top-k and top-p keep, ascending (None for all), and their weights."""
    maximum = np.float64(row.max())
    if top_k >= row.size:
        top_k = 0
    if not top_k and top_p >= 1.0:
        return None, _weights(row, maximum, temperature)
    if top_k:
        values = top_values(row, top_k)
        if top_p < 1.0:
            sums = np.cumsum(_weights(values, maximum, temperature))
            values = values[: _nucleus(sums, top_p * sums[-1])]
    else:
        wanted = top_p * _weights(row, maximum, temperature).sum()
        for guess in (*_NUCLEUS_GUESSES, row.size):
            values = top_values(row, guess)
            sums = np.cumsum(_weights(values, maximum, temperature))
            if sums[-1] >= wanted:
                break
        values = values[: _nucleus(sums, wanted)]
    ids = ids_down_to(row, values[-1], values.size)
    return ids, _weights(row[ids], maximum, temperature)


def _weights(values: Float32s, maximum: np.float64, temperature: float) -> Float64s:
    """Probabilities relative to the likeliest token's.

    Differences to the largest logit are divided, in float64, so that nothing overflows however low
    the temperature, and the likeliest token keeps weight 1.
    """
    scaled = values.astype(np.float64)
    scaled -= maximum
    scaled /= temperature
    return np.exp(scaled, out=scaled)


def _nucleus(sums: Float64s, wanted: float) -> int:
    """Size of the smallest prefix whose sum reaches `wanted`; at least 1, at most all."""
    return min(int(np.searchsorted(sums, wanted, side="left")) + 1, sums.size)
