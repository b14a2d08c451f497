"""Matrices of codes, as a loader of checkpoints gives them."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from kernels.coded import FP8, FP8_WEIGHTS, UINT4, CodedRows

_LEVELS = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()


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
        return self.codes.nbytes // (1 if self._is_fp8 else 2) + self.scales.nbytes

    @property
    def _is_fp8(self) -> bool:
        return self.scheme in (FP8, FP8_WEIGHTS)

    def rows(self, start: int, stop: int) -> CodedRows:
        """Some of them."""
        zeros = self.zeros if isinstance(self.zeros, int) else self.zeros[start:stop]
        levels = _LEVELS if self._is_fp8 else None
        return CodedRows(self.codes[start:stop], self.scales[start:stop], zeros, levels=levels)

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


def to_e4m3(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes, and scales [out, groups] of so many columns."""
    parts = weight.unflatten(1, (-1, group))
    scales = parts.abs().amax(2) / 448
    return (parts / scales[..., None]).flatten(1).to(torch.float8_e4m3fn), scales


def coded_fp8(weight: torch.Tensor, group: int, scheme: str = FP8) -> Coded:
    """A matrix rounded to e4m3."""
    codes, scales = to_e4m3(weight, group)
    return Coded(scheme, codes.view(torch.uint8).numpy(), scales.numpy(), 0)
