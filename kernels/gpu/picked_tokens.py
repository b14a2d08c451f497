"""Tokens that the step before picked, put into the rows of this one without asking the host.

    token_ids   [ 57 |  0 | 16 17 ]        sources   [ -1 | 3 | -1 -1 ]
    picked      [ 12 | 9 | 40 | 31 ]       ──▶  token_ids   [ 57 | 31 | 16 17 ]

The definition is `where(sources < 0, token_ids, maximum(picked[sources], 0))`. Where no token could
be picked (NOT_FINITE) the row is computed with token 0, and nobody will look at it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.gpu.triton_types import kernel, tl

if TYPE_CHECKING:
    import torch

_BLOCK = 128


@kernel(batch_dependent=("num_rows",))
def _take(
    token_ids_ptr: tl.tensor,  # [num_rows]
    sources_ptr: tl.tensor,  # [num_rows]
    picked_ptr: tl.tensor,  # [at least max(sources) + 1]
    num_rows: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(sources_ptr + row, mask=row < num_rows, other=-1)
    token = tl.load(picked_ptr + source, mask=source >= 0, other=0)
    tl.store(token_ids_ptr + row, tl.maximum(token, 0), mask=source >= 0)


def take_picked(token_ids: torch.Tensor, sources: torch.Tensor, picked: torch.Tensor) -> None:
    """Writes tokens into `token_ids` [num_rows] where `sources` [num_rows] names a pick of `picked`
    [num_picks]. All are int32 and on one device."""
    num_rows = len(token_ids)
    _take[(-(-num_rows // _BLOCK),)](token_ids, sources, picked, num_rows, BLOCK=_BLOCK)
