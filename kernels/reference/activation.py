"""Non-linear functions whose value for an element depends on neither its place nor its neighbours.

On a CPU torch computes most elements of a flat array with vector code and the last few, of each
thread's part, with scalar code, and the two differ in the last bit for exp and tanh. So a call here
covers few enough elements to stay on one thread, and starts and ends with whole rows or at fixed
columns. A GPU has one code for all elements: there a call covers all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.spec import Activation

if TYPE_CHECKING:
    from collections.abc import Callable

_SERIAL_ELEMENTS = 16_384  # half of ATen's grain size, below which it never splits a call
_VECTOR_ELEMENTS = 64  # two of the widest vectors, of the narrowest type: ATen's unit of a loop


def _silu_(x: torch.Tensor) -> None:
    torch.nn.functional.silu(x, inplace=True)


def _gelu_tanh_(x: torch.Tensor) -> None:
    torch.ops.aten.gelu_(x, approximate="tanh")


_IN_PLACE: dict[Activation, Callable[[torch.Tensor], None]] = {
    Activation.SILU: _silu_,
    Activation.GELU_TANH: _gelu_tanh_,
}


def by_rows(function: Callable[[torch.Tensor], object], x: torch.Tensor) -> None:
    """Calls the in-place `function` on parts of x [rows, size], cut alike in every row."""
    if x.device.type != "cpu":
        function(x)
        return
    size = x.shape[1]
    whole_rows = _SERIAL_ELEMENTS // size
    if whole_rows == 0:
        for row in torch.split(x, 1):
            for part in torch.split(row, _SERIAL_ELEMENTS, dim=1):
                function(part)
        return
    # Rows that lie end to end are one array to torch: vectors must not straddle them.
    rows_per_call = whole_rows if size % _VECTOR_ELEMENTS == 0 else 1
    for rows in torch.split(x, rows_per_call):
        function(rows)


def gated_activation(kind: Activation, gate_up: torch.Tensor) -> torch.Tensor:
    """act(gate) ∘ up: [rows, 2·size] with gate in the first half → [rows, size].

    The first half of `gate_up` is overwritten.
    """
    gate, up = gate_up.chunk(2, dim=1)
    by_rows(_IN_PLACE[kind], gate)
    return gate * up


def softcap_(x: torch.Tensor, cap: float) -> torch.Tensor:
    """cap · tanh(x / cap) in place, x [rows, size] (Gemma 2, arXiv:2408.00118)."""
    x.div_(cap)
    by_rows(torch.Tensor.tanh_, x)
    return x.mul_(cap)
