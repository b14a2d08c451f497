"""A LoRA adapter as numbers, from rank 0 to the others between two steps.

    head     [ ADAPTER | slot | num_matrices | 0 … ]         HEAD int32s; no matrices: an empty slot
    table    [ layer | part | rank | outputs | inputs ] …    one row for each matrix
    A, B     of each matrix in turn, the bits of float32s

All ranks hear all of it and take what goes with their part of the weights, so that an adapter's
files need to be on the first node alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine_svc.parallel.step_wire import ADAPTER, HEAD
from kernels.lora import ADAPTED, LoraAdapter, LowRank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernels.backend import Float32s, Int32s

_COLUMNS = 5  # of the table


def encode_adapter(slot: int, adapter: LoraAdapter | None) -> Iterator[Int32s]:
    """The messages that fill a slot of all ranks, or empty it, in order."""
    matrices = {} if adapter is None else adapter.matrices
    head = np.zeros(HEAD, dtype=np.int32)
    head[:3] = ADAPTER, slot, len(matrices)
    yield head
    if not matrices:
        return
    yield np.array([_row(name, matrix) for name, matrix in matrices.items()], np.int32).reshape(-1)
    for matrix in matrices.values():
        yield _bits(matrix.a)
        yield _bits(matrix.b)


def hear_adapter(head: Int32s, hear: Callable[[int], Int32s]) -> tuple[int, LoraAdapter | None]:
    """A slot and what is in it from now on; `hear` gives as many numbers as it is asked for.

    Raises ValueError for what is no adapter.
    """
    kind, slot, count = head[:3].tolist()
    if kind != ADAPTER or slot < 0 or count < 0:
        raise ValueError(f"an adapter was expected of rank 0, not {kind, slot, count}")
    if count == 0:
        return slot, None
    matrices = {}
    for row in hear(count * _COLUMNS).reshape(count, _COLUMNS).tolist():
        layer, part, rank, outputs, inputs = row
        if layer < 0 or part not in range(len(ADAPTED)) or min(rank, outputs, inputs) < 1:
            raise ValueError(f"a matrix of an adapter was expected of rank 0, not {row}")
        a, b = (rank, inputs), (outputs, rank)
        matrices[f"layers.{layer}.{ADAPTED[part]}"] = (a, b)
    return slot, LoraAdapter(
        {name: LowRank(_heard(a, hear), _heard(b, hear)) for name, (a, b) in matrices.items()}
    )


def _row(name: str, matrix: LowRank) -> tuple[int, ...]:
    _, layer, part = name.split(".")
    return int(layer), ADAPTED.index(part), matrix.rank, matrix.b.shape[0], matrix.a.shape[1]


def _bits(values: Float32s) -> Int32s:
    # Of a file that is mapped, values may not be written, which torch wants of what it sends.
    return np.require(values, np.float32, ("C", "W")).reshape(-1).view(np.int32)


def _heard(shape: tuple[int, int], hear: Callable[[int], Int32s]) -> Float32s:
    return hear(shape[0] * shape[1]).view(np.float32).reshape(shape)
