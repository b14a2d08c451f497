"""x·Wᵀ + b such that a row of the result depends on that row of x alone, bit for bit.

A matrix product sums in an order that its library picks by the number of rows: one row is a GEMV,
two another kernel, and the last bits differ. So products run only with row counts out of a set that
was proved equal, on this machine and for the model's own shapes, when the model was loaded:

    rows wanted      1 … 8    9 … 16   17 … 24   …   513 …
    rows computed      8        16        24           512, then the rest alike

Sizes that fail the proof are left out; were the smallest to fail too, rows go one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch

from kernels.encoder import EncoderActivation
from kernels.reference.activation import by_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# Fine while a product is bound by reading the weights, coarse once it is bound by arithmetic.
LAYER_TILES = (
    *(1, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *(160, 192, 224, 256, 320, 384, 448, 512),
)
HEAD_TILES = (1, 8, 16, 24, 32, 40, 48, 56, 64)
PROOF_TILE = 8  # what the other sizes are compared with

_PACK_ROWS = 128  # the row count oneDNN lays the weights out for; never one, that means a GEMV
_PACK_BLOCK = 64  # outputs per block of that layout

# An activation within a product, as oneDNN knows it: its name, scalars and algorithm.
_POST_OPS: dict[EncoderActivation | None, tuple[str, list[float], str]] = {
    None: ("none", [], ""),
    EncoderActivation.GELU: ("gelu", [], "none"),
    EncoderActivation.GELU_TANH: ("gelu", [], "tanh"),
    EncoderActivation.RELU: ("relu", [], ""),
    EncoderActivation.TANH: ("tanh", [], ""),
}
# The same as torch has it.
_IN_PLACE: dict[EncoderActivation, Callable[[torch.Tensor], object]] = {
    EncoderActivation.GELU: torch.ops.aten.gelu_,
    EncoderActivation.GELU_TANH: partial(torch.ops.aten.gelu_, approximate="tanh"),
    EncoderActivation.RELU: torch.relu_,
    EncoderActivation.TANH: torch.tanh_,
}


class Linear(Protocol):
    """A matrix [out, in], perhaps with a bias [out], in the layout that suits its product."""

    shape: tuple[int, int]
    has_bias: bool
    nbytes: int  # of matrix and bias as held

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x·Wᵀ + b, [rows, in] → [rows, out]: summed, then rounded once to x's type."""
        ...


class DenseLinear:
    """The definition: torch's own product over the matrix as it is."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: EncoderActivation | None = None,
    ) -> None:
        self.weight = weight
        self._bias = bias
        self._activation = activation
        self.shape = (weight.shape[0], weight.shape[1])
        self.has_bias = bias is not None
        self.nbytes = weight.nbytes + (0 if bias is None else bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As `Linear`."""
        y = torch.nn.functional.linear(x, self.weight, self._bias)
        if self._activation is not None:
            by_rows(_IN_PLACE[self._activation], y)
        return y


class PackedLinear:
    """The same over oneDNN's blocked layout: about twice as fast at few rows."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: EncoderActivation | None = None,
    ) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS)  # noqa: SLF001 (torch exports it under this name only)
        self._product = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001 (likewise)
        self._bias = bias
        self._post_op = _POST_OPS[activation]
        self.shape = (weight.shape[0], weight.shape[1])
        self.has_bias = bias is not None
        self.nbytes = matrix_bytes(self.shape, weight.dtype) + (0 if bias is None else bias.nbytes)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As `Linear`."""
        y: torch.Tensor = self._product(x, self._packed, self._bias, *self._post_op)
        return y


def packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN can pack matrices of this type on this machine."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call] # torch has no type
        return False
    if dtype is torch.float32:
        return True
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 (no public name)
    return dtype is torch.float16 and bool(
        torch.ops.mkldnn._is_mkldnn_fp16_supported()  # noqa: SLF001 (no public name)
    )


def matrix_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes that a matrix of shape [out, in] takes once `pack` has been at it."""
    out_features, in_features = shape
    block = _PACK_BLOCK if packs(dtype) else 1
    return -(-out_features // block) * block * in_features * dtype.itemsize


def pack(
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: EncoderActivation | None = None,
) -> Linear:
    """The fastest form of weight [out, in] and bias [out]; drop the originals afterwards.

    With an activation, a product goes through it at its end.
    """
    make = PackedLinear if packs(weight.dtype) else DenseLinear
    return make(weight, bias, activation)


@dataclass(frozen=True, slots=True)
class RowTiles:
    """The row counts, ascending, that give equal bits for equal rows."""

    sizes: tuple[int, ...]

    @property
    def largest(self) -> int:
        """Rows in the largest tile."""
        return self.sizes[-1]

    def padded(self, num_rows: int) -> int:
        """Rows to compute for the sake of `num_rows`: whole largest tiles, then the tightest."""
        whole, rest = divmod(num_rows, self.largest)
        tail = next(size for size in self.sizes if size >= rest) if rest else 0
        return whole * self.largest + tail

    def apply(self, linear: Linear, x: torch.Tensor) -> torch.Tensor:
        """`linear` over x [rows, in], where rows is a value that `padded` gave."""
        rows = x.shape[0]
        if rows <= self.largest:
            return linear(x)
        out = x.new_empty(rows, linear.shape[0])
        for start in range(0, rows, self.largest):
            stop = min(start + self.largest, rows)
            out[start:stop] = linear(x[start:stop])
        return out


def prove_tiles(
    shapes: Iterable[tuple[int, int]],
    sizes: Sequence[int],
    dtype: torch.dtype,
    make: Callable[[torch.Tensor, torch.Tensor | None], Linear] = pack,
) -> RowTiles:
    """Those of `sizes` that give the bits of `PROOF_TILE` for all matrices of `shapes` [out, in].

    The matrices are made up, with and without a bias, such that each sum is of terms that cancel:
    what is left is rounding error alone, and nearly every result changes when the order of its sum
    does. Random data would not do: rounding to bfloat16 hides almost all such differences.
    """
    kept = tuple(sizes)
    for num_out, num_in in shapes:
        weight, x = _cancelling(num_out, num_in, max(*sizes, 2 * PROOF_TILE), dtype)
        for bias in (None, torch.zeros(num_out, dtype=dtype)):
            linear = make(weight, bias)
            expected = torch.cat([linear(tile) for tile in torch.split(x, PROOF_TILE)])
            for shift in range(1, PROOF_TILE):  # other places in the tile, other neighbours
                rows = slice(shift, shift + PROOF_TILE)
                if not torch.equal(linear(x[rows].clone()), expected[rows]):
                    return RowTiles((1,))
            kept = tuple(size for size in kept if torch.equal(linear(x[:size]), expected[:size]))
    return RowTiles(kept or (1,))


def _cancelling(
    num_out: int, num_in: int, num_rows: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix [out, in] and rows [rows, in] whose products are all zero but for rounding."""
    generator = torch.Generator().manual_seed(0)
    half = num_in // 2
    order = torch.randperm(half, generator=generator)
    # Eight times normal: the errors of float32 sums stay clear of float16's smallest numbers.
    block = 8 * torch.randn(_PACK_BLOCK, half, generator=generator)
    rows = 8 * torch.randn(num_rows, half, generator=generator)
    odd = num_in % 2
    block = torch.cat((block, -block[:, order], torch.zeros(_PACK_BLOCK, odd)), 1).to(dtype)
    rows = torch.cat((rows, rows[:, order], torch.zeros(num_rows, odd)), 1).to(dtype)
    return block.repeat(-(-num_out // _PACK_BLOCK), 1)[:num_out].contiguous(), rows
