"""Where each weight of a decoder lies in the one buffer that holds them all, and in what format.

    │ layers.0.qkv │ its biases │ layers.0.o │ … │ layers.0.gate_up │ … │ head │ embed │ norms │

in the order of a step, so that it reads the buffer from front to back. Each matrix is blocks of 32
rows (src/matrix.h); the parts of a fused one begin at blocks of their own:

    qkv        q q q q k v                 gate_up    gate up gate up gate up …
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.coded import INT4, UINT4
from kernels.cpu.matrix import BLOCK_ROWS, COL_UNIT
from kernels.cpu.packing import DENSE_SCHEMES, MatrixFormat, packs_as_stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernels.backend import Precision, WeightSource
    from kernels.spec import DecoderSpec

VERSION = 2  # of layouts and of quantisation: another number, other bytes
_ALIGNMENT = 64
_FLOAT32_BYTES = 4
_INT4_GROUP = 32
_STORED_GROUP = 32  # of all the types that are kept as they are

# Of the formats that quantised files are kept in, the one that can hold what the others hold last.
_FINENESS = (
    MatrixFormat.GROUP4,
    MatrixFormat.GROUP4MIN,
    MatrixFormat.GROUP8,
    MatrixFormat.BFLOAT16,
)


@dataclass(frozen=True, slots=True)
class MatrixPart:
    """A weight within a matrix; its block j is the matrix's block first_block + j · block_step."""

    name: str
    shape: tuple[int, int]
    first_block: int
    block_step: int
    bias: str | None

    @property
    def num_blocks(self) -> int:
        """Blocks that the part fills."""
        return -(-self.shape[0] // BLOCK_ROWS)


@dataclass(frozen=True, slots=True)
class MatrixSlot:
    """A packed matrix within the buffer; offsets and sizes are in bytes."""

    parts: tuple[MatrixPart, ...]
    format: MatrixFormat
    group: int
    cols: int  # padded
    num_blocks: int
    block_bytes: int
    offset: int
    bias_offset: int | None  # float32 [num_blocks · 32]


@dataclass(frozen=True, slots=True)
class NormSlot:
    """A norm's factors within the buffer: float32, what the spec adds to them added."""

    offset: int  # bytes
    length: int  # elements


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """All weights of a decoder."""

    matrices: dict[str, MatrixSlot]
    norms: dict[str, NormSlot]
    total_bytes: int
    takes_work: bool  # weights are quantised, or decoded by Python, and not only moved

    def digest(self) -> str:
        """Differs between layouts, and between versions of this code that pack differently."""
        return hashlib.sha256(f"{VERSION} {self}".encode()).hexdigest()


def plan_weights(spec: DecoderSpec, source: WeightSource, precision: Precision) -> WeightLayout:
    """Lays out the weights of `spec`. Reads none of them.

    Raises ValueError for a `Precision.weights` that is unknown.
    """
    planner = _Planner(spec, source, precision.weights)
    for name, (parts, interleaved) in _matrices(spec).items():
        planner.add_matrix(name, parts, interleaved=interleaved)
    for name, shape in spec.weight_shapes().items():
        if name.endswith("norm"):
            planner.add_norm(name, shape[0])
    return WeightLayout(planner.matrices, planner.norms, planner.end, planner.takes_work)


def _matrices(spec: DecoderSpec) -> dict[str, tuple[Sequence[str], bool]]:
    """The names of each matrix's parts, and whether their blocks alternate."""
    found: dict[str, tuple[Sequence[str], bool]] = {}
    for i in range(spec.num_layers):
        prefix = f"layers.{i}."
        found[f"{prefix}qkv"] = [prefix + name for name in ("q", "k", "v")], False
        found[f"{prefix}o"] = [f"{prefix}o"], False
        found[f"{prefix}gate_up"] = [prefix + name for name in ("gate", "up")], True
        found[f"{prefix}down"] = [f"{prefix}down"], False
    if spec.tied_head:
        found["head"] = ["embed"], False
    else:
        found["head"] = ["lm_head"], False
        found["embed"] = ["embed"], False
    return found


class _Planner:
    """Places one matrix or norm after the other."""

    def __init__(self, spec: DecoderSpec, source: WeightSource, weights: str) -> None:
        if weights not in ("auto", "none", "int8", "int4"):
            raise ValueError(f"weights cannot be {weights!r}: auto, none, int8 or int4")
        self._shapes = spec.weight_shapes()
        self._source = source
        self._weights = weights
        self.matrices: dict[str, MatrixSlot] = {}
        self.norms: dict[str, NormSlot] = {}
        self.end = 0
        self.takes_work = weights in ("int8", "int4")

    def add_matrix(self, name: str, weights: Sequence[str], *, interleaved: bool) -> None:
        parts = tuple(self._parts(weights, interleaved=interleaved))
        format_, group = self._format(name, weights)
        cols = -(-parts[0].shape[1] // COL_UNIT) * COL_UNIT
        num_blocks = sum(part.num_blocks for part in parts)
        size = block_bytes(format_, cols, group)
        offset = self._take(num_blocks * size)
        has_bias = parts[0].bias is not None
        decoded = not all(packs_as_stored(self._source.scheme(weight)) for weight in weights)
        # With "none" the result is larger than the file, too large to keep for a start's seconds.
        self.takes_work = self.takes_work or (decoded and self._weights == "auto")
        self.matrices[name] = MatrixSlot(
            parts=parts,
            format=format_,
            group=group,
            cols=cols,
            num_blocks=num_blocks,
            block_bytes=size,
            offset=offset,
            bias_offset=self._take(num_blocks * BLOCK_ROWS * _FLOAT32_BYTES) if has_bias else None,
        )

    def add_norm(self, name: str, length: int) -> None:
        self.norms[name] = NormSlot(self._take(length * _FLOAT32_BYTES), length)

    def _take(self, num_bytes: int) -> int:
        offset = self.end
        self.end += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return offset

    def _parts(self, weights: Sequence[str], *, interleaved: bool) -> Iterator[MatrixPart]:
        first = 0
        for i, weight in enumerate(weights):
            rows, cols = self._shapes[weight]
            bias = f"{weight}_bias" if f"{weight}_bias" in self._shapes else None
            if interleaved:
                yield MatrixPart(weight, (rows, cols), i, len(weights), bias)
            else:
                part = MatrixPart(weight, (rows, cols), first, 1, bias)
                first += part.num_blocks
                yield part

    def _format(self, name: str, weights: Sequence[str]) -> tuple[MatrixFormat, int]:
        if self._weights == "none":
            return MatrixFormat.BFLOAT16, 0
        if self._weights == "int8" or (self._weights == "int4" and name in ("head", "embed")):
            return MatrixFormat.INT8, 0
        if self._weights == "int4":
            return MatrixFormat.GROUP4, _INT4_GROUP
        kept = (_kept_format(self._source.scheme(weight)) for weight in weights)
        format_ = max(kept, key=_FINENESS.index)
        return format_, 0 if format_ is MatrixFormat.BFLOAT16 else _STORED_GROUP


def _kept_format(scheme: str) -> MatrixFormat:
    """The nearest packed format. Exact for dense types and those named, near for others."""
    if scheme in DENSE_SCHEMES:
        return MatrixFormat.BFLOAT16
    if scheme in ("Q4_0", INT4):
        return MatrixFormat.GROUP4
    if scheme in ("Q4_1", "Q4_K", UINT4):
        return MatrixFormat.GROUP4MIN
    return MatrixFormat.GROUP8  # exact for Q8_0, Q5_0 and INT8


def block_bytes(format_: MatrixFormat, cols: int, group: int) -> int:
    """Bytes of a block of 32 rows of `cols` columns; block_bytes of src/matrix.h."""
    if format_ is MatrixFormat.BFLOAT16:
        return 2 * BLOCK_ROWS * cols
    if format_ is MatrixFormat.INT8:
        return BLOCK_ROWS * (_FLOAT32_BYTES + cols)
    per_row = {
        MatrixFormat.GROUP8: 2 + group,
        MatrixFormat.GROUP4: 2 + group // 2,
        MatrixFormat.GROUP4MIN: 4 + group // 2,
    }
    return cols // group * BLOCK_ROWS * per_row[format_]
