"""Between torch's tensors and weights as a file has them."""

from __future__ import annotations

import torch

from kernels.backend import StoredTensor

_SCHEMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def stored(tensor: torch.Tensor) -> StoredTensor:
    """A dense weight with the values of `tensor`, in its type."""
    data = tensor.contiguous().flatten().view(torch.uint8).numpy()
    return StoredTensor(_SCHEMES[tensor.dtype], tuple(tensor.shape), data)


def values(weight: StoredTensor) -> torch.Tensor:
    """The weight's values, in float32."""
    return torch.from_numpy(weight.to_float32())
