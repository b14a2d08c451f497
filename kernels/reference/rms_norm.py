"""Root-mean-square normalisation of rows (Zhang and Sennrich, arXiv:1910.07467)."""

from __future__ import annotations

import torch


def norm_scale(weight: torch.Tensor, offset: float, dtype: torch.dtype) -> torch.Tensor:
    """The scale that `rms_norm` takes, of a weight applied as (weight + offset).

    With an offset it is float32: such models multiply before they round to `dtype`, others after.
    """
    return weight.float() + offset if offset else weight.to(dtype)


def rms_norm(x: torch.Tensor, scale: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) · scale over the last axis, in x's type.

    The mean and the division are in float32 whatever x's type. x is [..., size]; scale ends in the
    same axis. A row's bits do not depend on the other rows: each row is one serial reduction.
    """
    normed = torch.nn.functional.rms_norm(x.float(), x.shape[-1:], None, eps)
    return normed.to(scale.dtype).mul_(scale).to(x.dtype)
