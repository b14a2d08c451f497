"""How fast rotary embeddings turn (Su et al., arXiv:2104.09864), in their stretched forms too.

With f_i = theta^(-2i/d), the pair (x_i, x_{i+d/2}) of a head turns by position · f_i. Stretched
forms change f so that a model reaches further than it was first trained for:

    linear    f / factor                                              (arXiv:2306.15595)
    llama3    f / factor where the wavelength is long, f where it is short, a blend between
    yarn      the same with a ramp over dimensions, and a scaled result (arXiv:2309.00071)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kernels.spec import RopeKind, RopeSpec

if TYPE_CHECKING:
    import numpy.typing as npt

    Float64s: TypeAlias = npt.NDArray[np.float64]


def inverse_frequencies(spec: RopeSpec, head_dim: int) -> npt.NDArray[np.float32]:
    """Angles per position, float32 [head_dim / 2]."""
    # Rounded where transformers rounds: models were trained with these.
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    powers = (spec.theta ** exponents.astype(np.float64)).astype(np.float32)
    base: Float64s = (np.float32(1.0) / powers).astype(np.float64)
    if spec.kind is RopeKind.LINEAR:
        base = base / spec.factor
    elif spec.kind is RopeKind.LLAMA3:
        base = _llama3(spec, base)
    elif spec.kind is RopeKind.YARN:
        base = _yarn(spec, base, head_dim)
    return base.astype(np.float32)


def _llama3(spec: RopeSpec, base: Float64s) -> Float64s:
    wavelength = 2 * math.pi / base
    turns = spec.original_max_position / wavelength  # within the original context
    blend = (turns - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor)
    blended = (1 - blend) * base / spec.factor + blend * base
    stretched = np.where(turns < spec.low_freq_factor, base / spec.factor, blended)
    return np.where(turns > spec.high_freq_factor, base, stretched)


def _yarn(spec: RopeSpec, base: Float64s, head_dim: int) -> Float64s:
    def dimension_with(turns: float) -> float:
        """Where in [0, head_dim / 2) a pair makes `turns` turns within the original context."""
        length = spec.original_max_position / (turns * 2 * math.pi)
        return head_dim * math.log(length) / (2 * math.log(spec.theta))

    low, high = dimension_with(spec.beta_fast), dimension_with(spec.beta_slow)
    if spec.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low or 0.001  # a ramp of no width is a step
    kept = 1 - ((np.arange(head_dim // 2) - low) / width).clip(0, 1)
    yarn: Float64s = base / spec.factor * (1 - kept) + base * kept
    return yarn
