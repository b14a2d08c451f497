"""Rotation of heads; defined by `kernels.reference.rope`. Other kernels call it on their tiles."""

from __future__ import annotations

from kernels.gpu.triton_types import kernel, tl


@kernel()
def rotated_half(
    x: tl.tensor, other: tl.tensor, cos: tl.tensor, sin: tl.tensor, DTYPE: tl.constexpr
) -> tl.tensor:
    """x · cos + other · sin, float32 values that DTYPE has exactly.

    Each product and the sum are rounded to DTYPE. The first half of a head takes the second as its
    `other`, with -sin; the second takes the first.
    """
    turned = (x * cos).to(DTYPE).to(tl.float32) + (other * sin).to(DTYPE).to(tl.float32)
    return turned.to(DTYPE).to(tl.float32)
