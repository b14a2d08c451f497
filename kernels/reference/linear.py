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
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Fine while a product is bound by reading the weights, coarse once it is bound by arithmetic.
LAYER_TILES = (
    *(1, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128),
    *(160, 192, 224, 256, 320, 384, 448, 512),
)
HEAD_TILES = (1, 8, 16, 24, 32, 40, 48, 56, 64)
PROOF_TILE = 8  # what the other sizes are compared with

_PACK_ROWS = 128  # the row count oneDNN lays the weights out for; never one, that means a GEMV
_PACK_BLOCK = 64  # outputs per block of that layout


class Linear(Protocol):
    """A matrix [out, in], perhaps with a bias [out], in the layout that suits its product."""

    @property
    def in_features(self) -> int:
        """Length of a row of x."""
        ...

    @property
    def out_features(self) -> int:
        """Length of a row of the result."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of matrix and bias as held."""
        ...

    @property
    def has_bias(self) -> bool:
        """Whether a bias is added, before the sum is rounded to x's type."""
        ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, in] → [rows, out], in x's type."""
        ...


@dataclass(frozen=True, slots=True)
class DenseLinear:
    """The definition: torch's own product over the matrix as it is."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def in_features(self) -> int:
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    @property
    def has_bias(self) -> bool:
        return self.bias is not None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


class PackedLinear:
    """The same over oneDNN's blocked layout: about twice as fast at few rows."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS)  # noqa: SLF001 (torch exports it under this name only)
        self._bias = bias
        self._product = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001 (likewise)
        self.out_features, self.in_features = weight.shape
        self.nbytes = matrix_bytes(weight.shape, weight.dtype) + (
            0 if bias is None else bias.nbytes
        )

    @property
    def has_bias(self) -> bool:
        return self._bias is not None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self._product(x, self._packed, self._bias, "none", [], "")
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


def pack(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """The fastest form of weight [out, in] and bias [out]; drop the originals afterwards."""
    return PackedLinear(weight, bias) if packs(weight.dtype) else DenseLinear(weight, bias)


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
        out = x.new_empty(rows, linear.out_features)
        for start in range(0, rows, self.largest):
            stop = min(start + self.largest, rows)
            out[start:stop] = linear(x[start:stop])
        return out


def prove_tiles(linears: Iterable[Linear], sizes: Sequence[int], dtype: torch.dtype) -> RowTiles:
    """Those of `sizes` with which every one of `linears` gives the bits that `PROOF_TILE` gives.

    One matrix stands for all of its shape. Rows are drawn at random from a fixed seed and compared
    at several places of the tile and beside several neighbours.
    """
    samples = {(m.in_features, m.out_features, m.has_bias): m for m in linears}
    kept = tuple(sizes)
    for linear in samples.values():
        generator = torch.Generator().manual_seed(linear.in_features)
        x = torch.randn(max(max(sizes), 2 * PROOF_TILE), linear.in_features, generator=generator)
        x = x.to(dtype)
        expected = torch.cat([linear(tile) for tile in torch.split(x, PROOF_TILE)])
        for shift in range(1, PROOF_TILE):
            moved = linear(x[shift : shift + PROOF_TILE])
            if not torch.equal(moved, expected[shift : shift + PROOF_TILE]):
                return RowTiles((1,))
        kept = tuple(size for size in kept if torch.equal(linear(x[:size]), expected[:size]))
    return RowTiles(kept)
