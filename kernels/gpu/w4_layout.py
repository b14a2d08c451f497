"""From the layouts of AWQ and GPTQ checkpoints to that of `kernels.gpu.w4a16`, and back to numbers.

A checkpoint packs eight codes into an int32, lowest bits first:

             qweight                          qzeros [K / group, N / 8]
    AWQ      [K, N / 8], outputs 0 2 4 6 1 3 5 7 of each eight     in the same order
    GPTQ     [K / 8, N], columns in order                          outputs in order, less 1

Both have scales [K / group, N]. With "act-order", GPTQ says each column's group in g_idx [K].
"""

from __future__ import annotations

import torch

from kernels.gpu.w4a16 import GROUPS, HALF, UNIT, W4Weight

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where each of eight outputs lies


def from_awq(qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor) -> W4Weight:
    """A matrix of an AWQ checkpoint ("gemm" version, 4 bits); see the module for shapes.

    Raises ValueError for sizes that the kernel cannot take.
    """
    codes = _nibbles(qweight)[..., _AWQ_ORDER].flatten(1).T
    zeros = _nibbles(qzeros)[..., _AWQ_ORDER].flatten(1)
    return pack_w4(codes, scales, zeros)


def from_gptq(
    qweight: torch.Tensor,
    qzeros: torch.Tensor,
    scales: torch.Tensor,
    g_idx: torch.Tensor | None = None,
    *,
    zero_offset: int = 1,
) -> W4Weight:
    """A matrix of a GPTQ checkpoint of 4 bits; see the module for shapes.

    zero_offset is what stored zeros lack: 0 for checkpoint_format "gptq_v2". Raises ValueError for
    sizes that the kernel cannot take, and for groups of unequal size.
    """
    codes = _nibbles(qweight).permute(0, 2, 1).flatten(0, 1).T
    zeros = _nibbles(qzeros).flatten(1) + zero_offset
    order = None
    if g_idx is not None:
        group = codes.shape[1] // scales.shape[0]
        in_order = torch.arange(codes.shape[1], device=g_idx.device) // group
        if not torch.equal(g_idx.long(), in_order):
            order = torch.argsort(g_idx.long(), stable=True)
            if not torch.equal(g_idx.long()[order], in_order):
                raise ValueError("g_idx has groups of unequal size")
            codes = codes[:, order]
    return pack_w4(codes, scales, zeros, order)


def pack_w4(
    codes: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None = None,
    order: torch.Tensor | None = None,
) -> W4Weight:
    """The layout of `kernels.gpu.w4a16` for codes [N, K] of 0 … 15.

    scales and zeros are [K / group, N], order [K] says which column of x each column of codes
    meets. Raises ValueError for groups other than 32, 64 and 128 or a K of no whole units of 64.
    """
    num_out, num_in = codes.shape
    groups = scales.shape[0]
    if num_in % groups or num_in // groups not in GROUPS or num_in % UNIT:
        raise ValueError(
            f"{num_in} columns in {groups} groups: not of 32, 64 or 128, or not of 64s"
        )
    blocks = -(-num_out // UNIT)
    padded = torch.zeros(blocks * UNIT, num_in, dtype=torch.uint8, device=codes.device)
    padded[:num_out] = codes
    halves = padded.view(blocks, UNIT, num_in // UNIT, 2, HALF).permute(0, 2, 1, 3, 4)
    return W4Weight(
        (halves[..., 0, :] | halves[..., 1, :] << 4).contiguous(),
        scales.contiguous(),
        None if zeros is None else zeros.to(torch.uint8).contiguous(),
        None if order is None else order.to(torch.int32).contiguous(),
        num_out,
        num_in,
    )


def dequantise_w4(weight: W4Weight, dtype: torch.dtype) -> torch.Tensor:
    """The matrix [num_out, num_in] that a weight stands for, as the kernel rounds it to dtype."""
    halves = torch.stack((weight.codes & 15, weight.codes >> 4), dim=3)
    codes = halves.permute(0, 2, 1, 3, 4).reshape(-1, weight.num_in)[: weight.num_out]
    zeros = 8.0 if weight.zeros is None else _each_column(weight.zeros, weight)
    values = (codes.float() - zeros) * _each_column(weight.scales, weight)
    if weight.order is not None:
        values = values[:, torch.argsort(weight.order)]
    return values.to(dtype)


def _each_column(of_groups: torch.Tensor, weight: W4Weight) -> torch.Tensor:
    return of_groups.float().T.repeat_interleave(weight.group, dim=1)


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """The eight codes of each int32, lowest bits first: [..., 8] uint8."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    return ((packed[..., None] >> shifts) & 15).to(torch.uint8)
