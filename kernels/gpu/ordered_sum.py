"""The sum of what all ranks gave, in the order of ranks: one pass over what was gathered.

    parts [ranks, …]   ─► float32: parts[0] + parts[1] + …, rounded once ─► […]

The definition is `kernels.collectives.in_order`. Each element is summed by itself, so that its bits
depend on nothing beside.
"""

from __future__ import annotations

import torch

from kernels.gpu.triton_types import kernel, tl

_BLOCK = 1024  # elements of a program


@kernel()
def _sum_parts(
    parts_ptr: tl.tensor,  # [RANKS, size]
    out_ptr: tl.tensor,  # [size]
    size: tl.tensor,
    RANKS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    total = tl.load(parts_ptr + at, mask=inside, other=0.0).to(tl.float32)
    for rank in tl.static_range(1, RANKS):
        part = parts_ptr + tl.cast(size, tl.int64) * rank + at
        total += tl.load(part, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)


def sum_parts(parts: torch.Tensor) -> torch.Tensor:
    """parts[0] + parts[1] + … over the first dimension, in parts' type. Contiguous parts only."""
    out = torch.empty(parts.shape[1:], dtype=parts.dtype, device=parts.device)
    if (size := out.numel()) > 0:
        _sum_parts[(-(-size // _BLOCK),)](
            parts, out, size, RANKS=len(parts), BLOCK=_BLOCK, num_warps=4
        )
    return out
