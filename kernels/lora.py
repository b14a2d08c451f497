"""Low-rank adapters of a decoder's matrices (LoRA, arXiv:2106.09685), as data.

    y = x·Wᵀ + (x·Aᵀ)·Bᵀ          A: [rank, in]   B: [out, rank], the adapter's scale within it

for the rows of requests that name the adapter; other rows of the same step are untouched. Matrices
that an adapter does not name stay as they are. Embeddings, the head and norms have no adapters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt

    from kernels.spec import DecoderSpec

    Float32s = npt.NDArray[np.float32]

ADAPTED = ("q", "k", "v", "o", "gate", "up", "down")  # parts of a layer that may have an adapter


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to one matrix [out, in]."""

    a: Float32s  # [rank, in]
    b: Float32s  # [out, rank], multiplied by the adapter's scale

    @property
    def rank(self) -> int:
        """Rows of A, columns of B."""
        return int(self.a.shape[0])


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """An adapter as its file has it, by the canonical names of the matrices ("layers.3.q")."""

    matrices: Mapping[str, LowRank]

    @property
    def rank(self) -> int:
        """The largest rank of its matrices."""
        return max(matrix.rank for matrix in self.matrices.values())


def adapted_names(spec: DecoderSpec) -> Iterator[str]:
    """Canonical names of all matrices that may have an adapter."""
    for layer in range(spec.num_layers):
        for part in ADAPTED:
            yield f"layers.{layer}.{part}"


def check_adapter(spec: DecoderSpec, adapter: LoraAdapter) -> None:
    """Raises ValueError, naming the matrix, for one that the model has not or in another shape."""
    shapes, known = spec.weight_shapes(), set(adapted_names(spec))
    for name, matrix in adapter.matrices.items():
        if name not in known:
            raise ValueError(f"the model has no matrix {name} that an adapter could change")
        out, cols = shapes[name]
        rank = matrix.rank
        if matrix.a.shape != (rank, cols) or matrix.b.shape != (out, rank):
            raise ValueError(
                f"the adapter's matrices for {name} are {list(matrix.a.shape)} and "
                f"{list(matrix.b.shape)}; with rank {rank} the model needs {[rank, cols]} and "
                f"{[out, rank]}"
            )


def adapter_elements(spec: DecoderSpec, rank: int) -> int:
    """Elements of an adapter of this rank for all matrices that may have one."""
    shapes = spec.weight_shapes()
    return sum(rank * sum(shapes[name]) for name in adapted_names(spec))
