"""Rotary position embedding (Su et al., arXiv:2104.09864) and its stretched forms.

With f_i = theta^(-2i/d), the pair (x_i, x_{i+d/2}) of a head turns by position · f_i. Stretched
forms change f so that a model reaches further than it was first trained for:

    linear    f / factor                                              (arXiv:2306.15595)
    llama3    f / factor where the wavelength is long, f where it is short, a blend between
    yarn      the same with a ramp over dimensions, and a scaled result (arXiv:2309.00071)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernels.spec import RopeKind, RopeSpec


def inverse_frequencies(spec: RopeSpec, head_dim: int) -> torch.Tensor:
    """Angles per position, float32 [head_dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    base = 1.0 / spec.theta**exponents
    if spec.kind is RopeKind.LINEAR:
        return base / spec.factor
    if spec.kind is RopeKind.LLAMA3:
        return _llama3(spec, base)
    if spec.kind is RopeKind.YARN:
        return _yarn(spec, base, head_dim)
    return base


def _llama3(spec: RopeSpec, base: torch.Tensor) -> torch.Tensor:
    wavelength = 2 * math.pi / base
    turns = spec.original_max_position / wavelength  # within the original context
    blend = (turns - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor)
    blended = (1 - blend) * base / spec.factor + blend * base
    stretched = torch.where(turns < spec.low_freq_factor, base / spec.factor, blended)
    return torch.where(turns > spec.high_freq_factor, base, stretched)


def _yarn(spec: RopeSpec, base: torch.Tensor, head_dim: int) -> torch.Tensor:
    def dimension_with(turns: float) -> float:
        """Where in [0, head_dim / 2) a pair makes `turns` turns within the original context."""
        length = spec.original_max_position / (turns * 2 * math.pi)
        return head_dim * math.log(length) / (2 * math.log(spec.theta))

    low, high = dimension_with(spec.beta_fast), dimension_with(spec.beta_slow)
    if spec.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low or 0.001  # a ramp of no width is a step
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    kept = 1 - ramp
    return base / spec.factor * (1 - kept) + base * kept


@dataclass(frozen=True, slots=True)
class RopeTable:
    """cos and sin of every position, [num_positions, head_dim / 2] each, in the model's type."""

    cos: torch.Tensor
    sin: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of both halves."""
        return self.cos.nbytes + self.sin.nbytes

    def rows(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The factors that `rope` takes: positions [rows] → two of [rows, 1, head_dim]."""
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.cat((cos, cos), 1).unsqueeze(1), torch.cat((-sin, sin), 1).unsqueeze(1)


def rope_table(spec: RopeSpec, head_dim: int, num_positions: int, dtype: torch.dtype) -> RopeTable:
    """The table of a spec: computed in float32, then rounded to `dtype`."""
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = torch.outer(positions, inverse_frequencies(spec, head_dim))
    scale = spec.attention_factor
    return RopeTable((angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype))


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns every head: x [rows, heads, head_dim], cos and sin as `RopeTable.rows` gives them.

    Each product and the sum are rounded to x's type. Returns a new tensor.
    """
    half = x.shape[-1] // 2
    other = torch.cat((x[..., half:], x[..., :half]), dim=-1).mul_(sin)
    return (x * cos).add_(other)
