"""A random matrix of 4-bit codes, as a loader of checkpoints gives it."""

from __future__ import annotations

import dataclasses

import numpy as np

from kernels.coded import UINT4, CodedRows


@dataclasses.dataclass
class Coded:
    """A matrix of codes, as a loader gives it."""

    scheme: str
    codes: np.ndarray
    scales: np.ndarray  # [rows, groups]
    zeros: np.ndarray | int

    @property
    def shape(self) -> tuple[int, ...]:
        """[out, in]."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return self.codes.nbytes // 2 + self.scales.nbytes

    def rows(self, start: int, stop: int) -> CodedRows:
        """Some of them."""
        zeros = self.zeros if isinstance(self.zeros, int) else self.zeros[start:stop]
        return CodedRows(self.codes[start:stop], self.scales[start:stop], zeros)

    def to_float32(self) -> np.ndarray:
        """The values."""
        return self.rows(0, len(self.codes)).to_float32()


def coded(shape: tuple[int, int], scheme: str, group: int = 32, seed: int = 0) -> Coded:
    """Random codes in groups of so many columns."""
    rng = np.random.default_rng(seed)
    groups = (shape[0], shape[1] // group)
    zeros: np.ndarray | int = 8
    if scheme == UINT4:
        zeros = rng.integers(1, 16, groups, dtype=np.uint8)
    scales = rng.uniform(0.01, 0.03, groups).astype(np.float16).astype(np.float32)
    return Coded(scheme, rng.integers(0, 16, shape, dtype=np.uint8), scales, zeros)
