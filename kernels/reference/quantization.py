"""What the formats of packed weights hold: the definition of kernels/cpu/src/pack*.

w ≈ scale · (code - zero), codes uint8. All arithmetic is float32, and sums run over columns one
after another, so that another implementation can give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats: TypeAlias = npt.NDArray[np.float32]

INT8_ZERO, INT4_ZERO = 128, 8
_INT8_MAX = 127
_ROTATED_COLS = 64
_INT4_MIN, _INT4_MAX = -8, 7


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix [rows, cols] with a scale for each group of `cols // scales.shape[1]` columns."""

    codes: npt.NDArray[np.uint8]  # [rows, cols]
    scales: npt.NDArray[np.floating]  # [rows, groups]; float32 for whole rows, else float16
    zero: int

    def dequantise(self) -> Floats:
        """The weights that it stands for, [rows, cols]."""
        rows, groups = self.scales.shape
        signed = self.codes.astype(np.float32) - np.float32(self.zero)
        scaled = signed.reshape(rows, groups, -1) * self.scales.astype(np.float32)[..., None]
        return scaled.reshape(rows, -1)


def rotated(weights: Floats) -> Floats:
    """Each 64 columns of `weights` [rows, cols] turned by the Walsh-Hadamard transform, times 1/8.

    Its own inverse. What is multiplied with the result must be turned likewise; large values are
    then spread over their neighbours (QuaRot, arXiv:2404.00456). `cols` is a multiple of 64.
    """
    out = _grouped(weights, _ROTATED_COLS).astype(np.float32)
    half = 1
    while half < _ROTATED_COLS:
        pairs = out.reshape(*out.shape[:2], -1, 2, half)
        first, second = pairs[:, :, :, 0], pairs[:, :, :, 1]
        out = np.stack((first + second, first - second), axis=3).reshape(out.shape)
        half *= 2
    return (out * np.float32(0.125)).reshape(weights.shape)


def int8_channels(weights: Floats) -> Quantised:
    """Codes of -127 to 127 with one float32 scale for each row of `weights` [rows, cols]."""
    scales = np.abs(weights).max(axis=1, keepdims=True) / np.float32(_INT8_MAX)
    codes = _round(weights, scales, -_INT8_MAX, _INT8_MAX)
    return Quantised(_stored(codes, INT8_ZERO), scales, INT8_ZERO)


def int8_groups(weights: Floats, group: int) -> Quantised:
    """Codes of -127 to 127 with a float16 scale for each `group` columns of a row."""
    groups = _grouped(weights, group)
    scales = (np.abs(groups).max(axis=2) / np.float32(_INT8_MAX)).astype(np.float16)
    codes = _round(groups, scales.astype(np.float32)[..., None], -_INT8_MAX, _INT8_MAX)
    return Quantised(_stored(codes, INT8_ZERO).reshape(weights.shape), scales, INT8_ZERO)


def int4_groups(weights: Floats, group: int) -> Quantised:
    """Codes of -8 to 7 with a float16 scale for each `group` columns of a row.

    The scale is the best of 19 in squared error. Each try puts the weight of greatest magnitude at
    -7.1, -7.2, … or -8.9 (the scale's sign follows from it), rounds the group to codes q, and fits
    the scale to them: Σ w·q / Σ q², which leaves Σ w² - (Σ w·q)² / Σ q². At last the codes are
    rounded again by the scale as stored. A group that is such a grid already is kept exactly.
    """
    groups = _grouped(weights, group)
    best = np.zeros(groups.shape[:2], np.float32)
    scales = np.zeros_like(best)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=2)[..., None], 2)[..., 0]
    for i in range(-9, 10):
        anchor = -(np.float32(8.0) + np.float32(0.1) * np.float32(i))
        inverse = anchor * _inverse(largest)
        products, squares = np.zeros_like(best), np.zeros_like(best)
        for c in range(group):
            w = groups[..., c]
            q = np.rint(w * inverse).clip(_INT4_MIN, _INT4_MAX)
            products += w * q
            squares += q * q
        fitted = products * _inverse(squares)
        gain = products * fitted
        scales = np.where(gain > best, fitted, scales)
        best = np.maximum(gain, best)
    stored = scales.astype(np.float16)
    codes = _round(groups, stored.astype(np.float32)[..., None], _INT4_MIN, _INT4_MAX)
    return Quantised(_stored(codes, INT4_ZERO).reshape(weights.shape), stored, INT4_ZERO)


def _grouped(weights: Floats, group: int) -> Floats:
    rows, cols = weights.shape
    if cols % group:
        raise ValueError(f"{cols} columns are not whole groups of {group}")
    return weights.reshape(rows, -1, group)


def _inverse(x: Floats) -> Floats:
    return np.divide(np.float32(1.0), x, out=np.zeros_like(x), where=x != 0)


def _round(weights: Floats, scales: Floats, low: int, high: int) -> Floats:
    codes: Floats = np.rint(weights * _inverse(scales)).clip(low, high)
    return codes


def _stored(codes: Floats, zero: int) -> npt.NDArray[np.uint8]:
    return (codes + np.float32(zero)).astype(np.uint8)
