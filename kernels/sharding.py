"""What one rank of several holds of a decoder: a spec and a source of weights of its own.

    q k v gate up    their outputs    │ rank 0 │ rank 1 │ …     heads with their KV head, neurons
    o down           their inputs     │ the same heads and neurons
    embed, lm_head   their rows       │ tokens of the vocabulary
    norms            whole, on every rank
    biases of o, down                 rank 0's; zeros elsewhere, as what they are added to is summed

Parts differ by one at most, the larger ones first, so that rank 0 holds the most of everything and
no count has to be divisible. What is never cut is a KV head: 3 of them make 2 and 1 for two ranks.

Source: Megatron-LM (arXiv:1909.08053).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from kernels.backend import StoredTensor
from kernels.coded import INT4, UINT4, CodedRows, decoded, keeps_codes
from kernels.lora import LoraAdapter, LowRank

if TYPE_CHECKING:
    from typing import TypeVar

    import numpy.typing as npt

    from kernels.backend import Float32s, WeightSource
    from kernels.coded import CodedTensor
    from kernels.spec import DecoderSpec

    _Number = TypeVar("_Number", np.float32, np.uint8)

_DENSE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_CODED_UNIT = 64  # columns of codes, of which groups and products are multiples
_BAND_ROWS = 512  # rows that are decoded at once where columns of quantised ones are wanted


def parts(count: int, num_ranks: int) -> tuple[range, ...]:
    """[0, count) cut among ranks: each its range, the first ones longer by one if need be."""
    least, more = divmod(count, num_ranks)
    stops = [least * rank + min(rank, more) for rank in range(num_ranks + 1)]
    return tuple(range(start, stop) for start, stop in pairwise(stops))


@dataclass(frozen=True, slots=True)
class Shard:
    """What rank `rank` of `num_ranks` holds. Raises ValueError if there are too few KV heads."""

    whole: DecoderSpec
    rank: int
    num_ranks: int

    def __post_init__(self) -> None:
        for count, what in (
            (self.whole.num_kv_heads, "KV heads"),
            (self.whole.intermediate_size, "neurons"),
            (self.whole.vocab_size, "tokens of the vocabulary"),
        ):
            if self.num_ranks > count:
                raise ValueError(
                    f"{self.num_ranks} ranks are more than the model's {count} {what}, of which "
                    "each rank holds whole ones"
                )

    @property
    def kv_heads(self) -> range:
        """KV heads, each with all query heads that read it."""
        return parts(self.whole.num_kv_heads, self.num_ranks)[self.rank]

    @property
    def neurons(self) -> range:
        """Neurons of the MLP."""
        return parts(self.whole.intermediate_size, self.num_ranks)[self.rank]

    @property
    def vocabulary(self) -> tuple[range, ...]:
        """The token ids of every rank."""
        return parts(self.whole.vocab_size, self.num_ranks)

    @property
    def spec(self) -> DecoderSpec:
        """The rank's own decoder: fewer heads, neurons and tokens, and rows as wide as ever."""
        group = self.whole.num_heads // self.whole.num_kv_heads
        return replace(
            self.whole,
            num_heads=group * len(self.kv_heads),
            num_kv_heads=len(self.kv_heads),
            intermediate_size=len(self.neurons),
            vocab_size=len(self.vocabulary[self.rank]),
        )

    def rows(self, name: str) -> range | None:
        """Rows of a weight that are the rank's, by its canonical name; None is all of them."""
        part = name.rpartition(".")[2].removesuffix("_bias")
        match part:
            case "q":
                return _scaled(self.kv_heads, self._query_rows)
            case "k" | "v":
                return _scaled(self.kv_heads, self.whole.head_dim)
            case "gate" | "up":
                return self.neurons
            case "embed" | "lm_head":
                return self.vocabulary[self.rank]
            case _:
                return None

    def columns(self, name: str) -> range | None:
        """Columns of a weight that are the rank's; None is all of them."""
        match name.rpartition(".")[2]:
            case "o":
                return _scaled(self.kv_heads, self._query_rows)
            case "down":
                return self.neurons
            case _:
                return None

    def adapter(self, whole: LoraAdapter) -> LoraAdapter:
        """The rank's part of an adapter: rows of B where weights have the rank's rows, columns of A
        where they have its columns. The parts are views.
        """
        return LoraAdapter(
            {name: self._low_rank(name, matrix) for name, matrix in whole.matrices.items()}
        )

    def _low_rank(self, name: str, matrix: LowRank) -> LowRank:
        if (rows := self.rows(name)) is not None:
            return LowRank(matrix.a, matrix.b[rows.start : rows.stop])
        if (columns := self.columns(name)) is not None:
            return LowRank(matrix.a[:, columns.start : columns.stop], matrix.b)
        return matrix

    @property
    def _query_rows(self) -> int:
        """Rows of q for one KV head."""
        return self.whole.num_heads // self.whole.num_kv_heads * self.whole.head_dim


@dataclass(frozen=True, slots=True)
class ShardedWeights:
    """`WeightSource` of a rank: the rank's part of what another source has.

    Rows are views of what the source gives, columns are copied, so that no more is read of a mapped
    file than the rank needs. Columns of quantised weights come decoded, as their cuts need not fall
    between blocks; but for codes that are cut where a GPU can go on with them.
    """

    source: WeightSource
    shard: Shard

    @property
    def total_bytes(self) -> int:
        """Bytes that `load` will give over all names."""
        shapes = self.shard.spec.weight_shapes()
        return sum(_num_bytes(self.scheme(name), shape) for name, shape in shapes.items())

    def scheme(self, name: str) -> str:
        """The `StoredTensor.scheme` of one weight, without reading it."""
        scheme = self.source.scheme(name)
        if scheme in _DENSE_BYTES:
            return scheme
        columns = self.shard.columns(name)
        if columns is None:
            return scheme
        whole = all(end % _CODED_UNIT == 0 for end in (columns.start, columns.stop))
        return scheme if whole and keeps_codes([scheme], len(columns)) else "F32"

    def load(self, name: str) -> StoredTensor | CodedTensor:
        """The rank's part of one weight. Raises ValueError if the whole has another shape."""
        stored = self.source.load(name)
        if stored.shape != (expected := self.shard.whole.weight_shapes()[name]):
            raise ValueError(
                f"weight {name} has shape {list(stored.shape)}, the model needs {list(expected)}"
            )
        columns = self.shard.columns(name)
        if not isinstance(stored, StoredTensor):
            if self.scheme(name) != stored.scheme:
                return _decoded(stored, range(stored.shape[0]), columns)
            return CodedPart(stored, self.shard.rows(name) or range(stored.shape[0]), columns)
        if (rows := self.shard.rows(name)) is not None:
            return _take_rows(stored, rows)
        if columns is not None:
            return _take_columns(stored, columns)
        if self.shard.rank > 0 and name.rpartition(".")[2] in ("o_bias", "down_bias"):
            return StoredTensor(stored.scheme, stored.shape, np.zeros_like(stored.data))
        return stored


@dataclass(frozen=True, slots=True)
class CodedPart:
    """Some rows and columns of a coded matrix. Implements `kernels.coded.CodedTensor`."""

    whole: CodedTensor
    own_rows: range
    own_columns: range | None  # None is all

    @property
    def scheme(self) -> str:
        """That of the whole."""
        return self.whole.scheme

    @property
    def shape(self) -> tuple[int, ...]:
        """[out, in] of the part."""
        columns = self.whole.shape[1] if self.own_columns is None else len(self.own_columns)
        return len(self.own_rows), columns

    @property
    def nbytes(self) -> int:
        """Bytes of its codes."""
        return _num_bytes(self.scheme, self.shape)

    def rows(self, start: int, stop: int) -> CodedRows:
        """As `CodedTensor`."""
        band = self.own_rows[start:stop]
        found = self.whole.rows(band.start, band.stop)
        return found if self.own_columns is None else _columns_of(found, self.own_columns)

    def to_float32(self) -> Float32s:
        """All values, as a new array of `shape`."""
        return decoded(self)


def _columns_of(rows: CodedRows, columns: range) -> CodedRows:
    """Columns of rows whose groups are neighbours; groups that are cut become smaller ones."""
    whole = rows.codes.shape[1] // rows.scales.shape[1]
    size = math.gcd(whole, columns.start, columns.stop)

    def own(of_groups: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        if of_groups.shape[1] == 1:
            return of_groups
        repeated = np.repeat(of_groups, whole // size, axis=1)
        return repeated[:, columns.start // size : columns.stop // size]

    zeros = rows.zeros if isinstance(rows.zeros, int) else own(rows.zeros)
    codes = rows.codes[:, columns.start : columns.stop]
    return CodedRows(codes, own(rows.scales), zeros, levels=rows.levels)


def _scaled(units: range, size: int) -> range:
    return range(units.start * size, units.stop * size)


def _num_bytes(scheme: str, shape: tuple[int, ...]) -> int:
    if scheme in _DENSE_BYTES:
        return math.prod(shape) * _DENSE_BYTES[scheme]
    if scheme not in GGMLQuantizationType.__members__:
        return math.prod(shape) // (2 if scheme in (INT4, UINT4) else 1)
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[scheme]]
    return math.prod(shape) // block * block_bytes


def _take_rows(stored: StoredTensor, rows: range) -> StoredTensor:
    row_bytes = stored.data.nbytes // stored.shape[0]
    data = stored.data[rows.start * row_bytes : rows.stop * row_bytes]
    return StoredTensor(stored.scheme, (len(rows), *stored.shape[1:]), data)


def _take_columns(stored: StoredTensor, columns: range) -> StoredTensor:
    num_rows = stored.shape[0]
    if (size := _DENSE_BYTES.get(stored.scheme)) is None:
        return _decoded(stored, range(num_rows), columns)
    data = stored.data.reshape(num_rows, -1)[:, columns.start * size : columns.stop * size]
    return StoredTensor(
        stored.scheme, (num_rows, len(columns)), np.ascontiguousarray(data).reshape(-1)
    )


def _decoded(
    stored: StoredTensor | CodedTensor, rows: range, columns: range | None
) -> StoredTensor:
    """A part of a matrix in float32, decoded some rows at a time."""
    columns = columns or range(stored.shape[1])
    values = np.empty((len(rows), len(columns)), dtype=np.float32)
    for start in range(0, len(rows), _BAND_ROWS):
        band = rows[start : start + _BAND_ROWS]
        if isinstance(stored, StoredTensor):
            part = _take_rows(stored, band).to_float32()
        else:
            part = stored.rows(band.start, band.stop).to_float32()
        values[start : start + len(band)] = part[:, columns.start : columns.stop]
    return StoredTensor("F32", values.shape, values.reshape(-1).view(np.uint8))
