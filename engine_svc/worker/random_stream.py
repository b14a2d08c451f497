"""The counter-based generator behind sampling: a draw is a function of its name, not of a history.

Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011). Since nothing is carried from draw to draw, a request draws the same numbers alone, in
any batch, after a preemption and on another replica.

How a draw (seed, choice, position, lane) is named, so that every back end gives the same bits:

    key      [ seed & 0xffffffff, seed >> 32 ]
    counter  [ position, choice, lane, 0 ]         position: index among the request's output tokens
    output   [ x0, x1, x2, x3 ]
    uniform  ((x1 << 32 | x0) >> 11) · 2⁻⁵³        in [0, 1), 53 random bits, exact in float64

Lane 0 picks the token; others are free for algorithms that need more than one draw a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_ROUNDS = 10
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(
    counters: npt.NDArray[np.uint32], keys: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    """Ten rounds of Philox4x32: counters [n, 4] under keys [n, 2] give words [n, 4]."""
    x0, x1, x2, x3 = counters.T.astype(np.uint64)
    k0, k1 = keys.T.astype(np.uint64)
    for _ in range(_ROUNDS):
        left, right = x0 * _MULTIPLIER_0, x2 * _MULTIPLIER_1
        x0, x1 = (right >> _HALF) ^ x1 ^ k0, right & _WORD
        x2, x3 = (left >> _HALF) ^ x3 ^ k1, left & _WORD
        k0, k1 = (k0 + _WEYL_0) & _WORD, (k1 + _WEYL_1) & _WORD
    return np.stack((x0, x1, x2, x3), axis=1).astype(np.uint32)


def uniforms(
    seeds: Sequence[int], choices: Sequence[int], positions: Sequence[int], lane: int = 0
) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each (seed, choice, position), all of length n; see the module.

    Seeds are below 2**64, the others below 2**32.
    """
    if not seeds:  # most steps are greedy, and the rounds take their time however few draw
        return np.zeros(0)
    seed = np.array(seeds, dtype=np.uint64)
    counters = np.zeros((len(seed), 4), dtype=np.uint32)
    counters[:, 0] = positions
    counters[:, 1] = choices
    counters[:, 2] = lane
    keys = np.stack((seed & _WORD, seed >> _HALF), axis=1).astype(np.uint32)
    words = philox4x32(counters, keys).astype(np.uint64)
    bits = (words[:, 1] << _HALF | words[:, 0]) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
