"""Rotary position embedding (Su et al., arXiv:2104.09864), by a table of all positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kernels.rope_frequencies import inverse_frequencies

if TYPE_CHECKING:
    from kernels.spec import RopeSpec


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
    angles = torch.outer(positions, torch.from_numpy(inverse_frequencies(spec, head_dim)))
    scale = spec.attention_factor
    return RopeTable((angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype))


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns every head: x [rows, heads, head_dim], cos and sin as `RopeTable.rows` gives them.

    Each product and the sum are rounded to x's type. Returns a new tensor.
    """
    half = x.shape[-1] // 2
    other = torch.cat((x[..., half:], x[..., :half]), dim=-1).mul_(sin)
    return (x * cos).add_(other)
