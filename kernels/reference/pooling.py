"""From the rows of an input to one vector; names and formulae are sentence-transformers'."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.encoder import Pooling

if TYPE_CHECKING:
    from kernels.encoder import PoolingSpec


def pool(spec: PoolingSpec, rows: torch.Tensor) -> torch.Tensor:
    """The vector of one input: rows [num_tokens, hidden] → [hidden · number of modes]."""
    pooled = torch.cat([_pooled(mode, rows) for mode in spec.modes])
    return torch.nn.functional.normalize(pooled, dim=0) if spec.normalize else pooled


def _pooled(mode: Pooling, rows: torch.Tensor) -> torch.Tensor:
    pooled: torch.Tensor
    match mode:
        case Pooling.CLS:
            pooled = rows[0]
        case Pooling.MAX:
            pooled = rows.amax(0)
        case Pooling.MEAN:
            pooled = rows.sum(0) / len(rows)
        case Pooling.MEAN_SQRT_LEN:
            pooled = rows.sum(0) / len(rows) ** 0.5
        case Pooling.WEIGHTED_MEAN:
            weights = torch.arange(1, len(rows) + 1, dtype=rows.dtype)
            pooled = (rows * weights[:, None]).sum(0) / weights.sum()
        case Pooling.LAST_TOKEN:
            pooled = rows[-1]
    return pooled
