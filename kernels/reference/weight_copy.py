"""A weight from its file to where it is computed with, some rows at a time.

    file, often mapped  ── rows ──▶  values in the new type  ──▶  the same rows on the device

What is in that type already goes there as it is. All else is decoded to float32 and rounded. Either
way the host has no more than a part of the weight beside the file.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.backend import StoredTensor

if TYPE_CHECKING:
    from kernels.backend import Float32s
    from kernels.coded import CodedTensor

_PART = 1 << 22  # values at a time, 16 MB of float32
_DENSE = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def weight_on(
    stored: StoredTensor | CodedTensor, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A weight as a tensor of its own. Raises ValueError as `copy_weight` does."""
    if device.type == "cpu" and dtype is torch.float32:
        return torch.from_numpy(stored.to_float32())  # there is no other form on the way
    out = torch.empty(stored.shape, dtype=dtype, device=device)
    copy_weight(stored, out)
    return out


def copy_weight(stored: StoredTensor | CodedTensor, out: torch.Tensor) -> None:
    """Writes a weight into `out`, which has its shape, on any device and of a floating type.

    Raises ValueError for a scheme that nobody knows, and where a file contradicts itself.
    """
    num_rows = stored.shape[0]
    if len(stored.shape) == 1:
        out.copy_(_values(stored, out.dtype))
        return
    step = max(1, _PART // math.prod(stored.shape[1:]))
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        out[start:stop].copy_(_values(_rows(stored, start, stop), out.dtype))


def _rows(stored: StoredTensor | CodedTensor, start: int, stop: int) -> StoredTensor | Float32s:
    if not isinstance(stored, StoredTensor):
        return stored.rows(start, stop).to_float32()
    data = stored.data.reshape(stored.shape[0], -1)[start:stop].reshape(-1)
    return StoredTensor(stored.scheme, (stop - start, *stored.shape[1:]), data)


def _values(stored: StoredTensor | CodedTensor | Float32s, dtype: torch.dtype) -> torch.Tensor:
    """On the host, rounded there: to the same bits wherever they go."""
    if isinstance(stored, StoredTensor) and _DENSE.get(stored.scheme) is dtype:
        # A copy, as torch takes no memory that must not be written.
        return torch.from_numpy(np.array(stored.data)).view(dtype).reshape(stored.shape)
    values = stored if isinstance(stored, np.ndarray) else stored.to_float32()
    return torch.from_numpy(values).to(dtype)
