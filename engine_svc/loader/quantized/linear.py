"""One quantised matrix of a checkpoint: which tensors it is kept in, and what they mean.

    <module>.qweight   <module>.scales   <module>.qzeros …  ──▶  CodedRows

Every layout (`packed_words`, `signed_bytes`, `fp8`) is a `LinearFormat`; `source` reads with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kernels.coded import CODED_COLS, INT4, INT8, UINT4

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from kernels.coded import CodedRows, Codes, Floats

FLOATS = ("F16", "BF16", "F32")
_ELEMENT_BYTES = {"F16": 2, "BF16": 2, "F32": 4, "I32": 4, "I64": 8, "I8": 1, "F8_E4M3": 1}


@dataclass(frozen=True, slots=True)
class Expected:
    """A tensor that a matrix is kept in: what it may be by type and shape."""

    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    optional: bool = False
    other_name: str | None = None  # that it may have as well

    @property
    def num_bytes(self) -> int:
        """Bytes in the file, in the first type and shape; 0 if it need not be there."""
        return 0 if self.optional else math.prod(self.shapes[0]) * _ELEMENT_BYTES[self.dtypes[0]]


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor as it is in the file; `data` is uint8, flat."""

    dtype: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    def floats(self) -> Floats:
        """Its values, of a type of FLOATS."""
        if self.dtype == "BF16":
            wide = self.data.view(np.uint16).astype(np.uint32) << np.uint32(16)
            return wide.view(np.float32).reshape(self.shape)
        kind = np.float16 if self.dtype == "F16" else np.float32
        return self.data.view(kind).reshape(self.shape).astype(np.float32)

    def words(self) -> npt.NDArray[np.uint8]:
        """I32 as its four bytes, lowest first, in a dimension of their own."""
        return self.data.reshape(*self.shape, 4)

    def ints(self) -> npt.NDArray[np.int64]:
        """Its values, of I32 or I64."""
        kind = np.int32 if self.dtype == "I32" else np.int64
        return self.data.view(kind).reshape(self.shape).astype(np.int64)


class LinearFormat(Protocol):
    """How the matrices of one scheme are kept. Shapes are [out, in]."""

    @property
    def label(self) -> str:
        """For people, for example "4 bit, groups of 128"."""
        ...

    @property
    def codes(self) -> str:
        """The tensor with the codes, by its name after the module's."""
        ...

    def problem(self, shape: tuple[int, int]) -> str | None:
        """Why a matrix of this shape cannot be kept so, as a clause for people."""
        ...

    def tensors(self, shape: tuple[int, int]) -> Mapping[str, Expected]:
        """All tensors of a matrix, by their names after the module's."""
        ...

    def scheme(self, shape: tuple[int, int]) -> str:
        """`CodedTensor.scheme` of a matrix."""
        ...

    def rows(
        self, parts: Mapping[str, Part], shape: tuple[int, int], start: int, stop: int
    ) -> CodedRows:
        """Some rows. Raises ValueError that begins with the name of a part that is wrong."""
        ...


def num_groups(cols: int, group: int) -> int:
    """Groups of `group` columns in `cols`; a group of -1 columns has all."""
    return 1 if group == -1 else -(-cols // group)


def coded_scheme(bits: int, cols: int, group: int, *, symmetric: bool, ordered: bool) -> str:
    """The scheme of integer codes; `ordered`: neighbouring columns are of one group."""
    name = f"{'INT' if symmetric else 'UINT'}{bits}"
    size = cols if group == -1 else group
    if not ordered or cols % size or size % CODED_COLS:
        return f"{name} with scattered scales"
    return {"INT4": INT4, "UINT4": UINT4, "INT8": INT8}.get(name, name)


def columns_of_groups(cols: int, group: int) -> npt.NDArray[np.int32] | None:
    """The group of each column, where groups do not all have the same number of them."""
    if group == -1 or cols % group == 0:
        return None
    return (np.arange(cols) // group).astype(np.int32)


def nibbles(packed: npt.NDArray[np.uint8]) -> Codes:
    """Two codes of each byte, the low half first: [..., n] to [..., 2·n]."""
    out = np.empty((*packed.shape, 2), np.uint8)
    out[..., 0] = packed & 15
    out[..., 1] = packed >> 4
    return out.reshape(*packed.shape[:-1], -1)
