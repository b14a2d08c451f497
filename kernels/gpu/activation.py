"""act(gate) ∘ up of a gated MLP, alone or with its result as 8-bit codes.

    gate_up [rows, 2·inner]   │ gate │ up │ ─► act(gate) ∘ up [rows, inner]

The definition is `kernels.reference.activation.gated_activation`: the activation is computed in
float32 and rounded to the type of its input, then the product is.

A program takes one block of one row; where a row gets a scale, one program takes the whole row, in
blocks and twice: to find the largest magnitude, then to write codes. Either way a row's bits depend
on that row alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.gpu.quantization import QuantisedRows, require_rows, row_scale, to_codes
from kernels.gpu.triton_types import kernel, tl
from kernels.spec import Activation

if TYPE_CHECKING:
    from kernels.gpu.quantization import RowFormat

_BLOCK = 1024  # columns of a program
_CODES_BLOCK = 2048  # columns that a program takes at a time where it has the whole row


@kernel()
def _gated(
    gate_ptr: tl.tensor,
    up_ptr: tl.tensor,
    columns: tl.tensor,
    inside: tl.tensor,
    GELU: tl.constexpr,
) -> tl.tensor:
    """act(gate) · up of some columns, rounded to their type and back to float32."""
    dtype: tl.constexpr = gate_ptr.dtype.element_ty
    gate = tl.load(gate_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    # 1/2 · (1 + tanh(u)) is the logistic function of 2·u; the factor is sqrt(8 / π).
    slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if GELU else gate
    act = gate / (1.0 + tl.exp(tl.minimum(-slope, 88.0)))
    return (act.to(dtype).to(tl.float32) * up).to(dtype).to(tl.float32)


@kernel()
def _gated_blocks(
    gate_ptr: tl.tensor,  # [rows, inner]
    up_ptr: tl.tensor,  # [rows, inner]
    out_ptr: tl.tensor,  # [rows, inner]
    gate_stride: tl.tensor,
    up_stride: tl.tensor,
    inner: tl.tensor,
    GELU: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < inner
    y = _gated(gate_ptr + row * gate_stride, up_ptr + row * up_stride, columns, inside, GELU)
    tl.store(out_ptr + row * inner + columns, y.to(out_ptr.dtype.element_ty), mask=inside)


@kernel()
def _gated_codes(
    gate_ptr: tl.tensor,  # [rows, inner]
    up_ptr: tl.tensor,  # [rows, inner]
    codes_ptr: tl.tensor,  # [rows, inner]
    scales_ptr: tl.tensor,  # [rows]
    gate_stride: tl.tensor,
    up_stride: tl.tensor,
    inner: tl.tensor,
    GELU: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    gate_ptr += row * gate_stride
    up_ptr += row * up_stride
    largest = tl.zeros([BLOCK], tl.float32)
    faults = tl.zeros([BLOCK], tl.float32)
    for start in range(0, inner, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        y = _gated(gate_ptr, up_ptr, columns, columns < inner, GELU)
        largest = tl.maximum(largest, tl.abs(y))
        faults += y * 0.0
    scale, inverse = row_scale(tl.max(largest, 0), tl.sum(faults, 0), codes_ptr)
    tl.store(scales_ptr + row, scale)
    for start in range(0, inner, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < inner
        y = _gated(gate_ptr, up_ptr, columns, inside, GELU)
        tl.store(codes_ptr + row * inner + columns, to_codes(y, inverse, codes_ptr), mask=inside)


def gated_activation(kind: Activation, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """act(gate) ∘ up: two of [rows, inner], often halves of one product → [rows, inner].

    Raises ValueError for shapes or layouts that do not fit, as all functions here do.
    """
    _require_pair(gate, up)
    rows, inner = gate.shape
    out = torch.empty(rows, inner, dtype=gate.dtype, device=gate.device)
    if rows:
        _gated_blocks[(rows, -(-inner // _BLOCK))](
            gate,
            up,
            out,
            gate.stride(0),
            up.stride(0),
            inner,
            GELU=kind is Activation.GELU_TANH,
            BLOCK=_BLOCK,
            num_warps=4,
        )
    return out


def gated_activation_quantised(
    kind: Activation, gate: torch.Tensor, up: torch.Tensor, format_: RowFormat
) -> QuantisedRows:
    """`gated_activation`, then `quantise_rows`: the same bits in one pass."""
    _require_pair(gate, up)
    rows, inner = gate.shape
    out = QuantisedRows.empty(rows, inner, format_, gate.device)
    if rows:
        _gated_codes[(rows,)](
            gate,
            up,
            out.stored,
            out.scales,
            gate.stride(0),
            up.stride(0),
            inner,
            GELU=kind is Activation.GELU_TANH,
            BLOCK=_CODES_BLOCK,
            num_warps=8,
        )
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) ∘ up of gate_up [rows, 2·inner] → [rows, inner]."""
    return gated_activation(Activation.SILU, *_halves(gate_up))


def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gelu(gate) ∘ up, in the approximation by tanh, of gate_up [rows, 2·inner] → [rows, inner]."""
    return gated_activation(Activation.GELU_TANH, *_halves(gate_up))


def silu_mul_quantised(gate_up: torch.Tensor, format_: RowFormat) -> QuantisedRows:
    """`silu_mul`, then `quantise_rows`."""
    return gated_activation_quantised(Activation.SILU, *_halves(gate_up), format_)


def gelu_tanh_mul_quantised(gate_up: torch.Tensor, format_: RowFormat) -> QuantisedRows:
    """`gelu_tanh_mul`, then `quantise_rows`."""
    return gated_activation_quantised(Activation.GELU_TANH, *_halves(gate_up), format_)


def _halves(gate_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    require_rows(gate_up)
    inner, odd = divmod(gate_up.shape[1], 2)
    if odd:
        raise ValueError(f"{gate_up.shape[1]} columns have no halves")
    return gate_up[:, :inner], gate_up[:, inner:]


def _require_pair(gate: torch.Tensor, up: torch.Tensor) -> None:
    require_rows(gate, up)
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError(f"gate {list(gate.shape)} and up {list(up.shape)} differ")
