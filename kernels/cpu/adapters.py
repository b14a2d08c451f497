"""LoRA adapters in the layout of src/low_rank.h: bfloat16, one piece of memory an adapter."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernels.cpu.matrix import BLOCK_ROWS, COL_UNIT
from kernels.lora import check_adapter

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from kernels.backend import Float32s
    from kernels.lora import LoraAdapter, LowRank
    from kernels.spec import DecoderSpec

    BFloat16s = npt.NDArray[np.uint16]

_MATRICES = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",))  # the parts of each
_MAX_PARTS = 3


class _PartArgs(ctypes.Structure):
    _fields_ = (("b", ctypes.c_void_p), ("rank", ctypes.c_int32))


class LowRankArgs(ctypes.Structure):
    """OctavoLowRank of src/abi.h."""

    _fields_ = (("a", ctypes.c_void_p), ("parts", _PartArgs * _MAX_PARTS))


@dataclass(frozen=True, slots=True)
class CpuAdapter:
    """An adapter as the C++ decoder reads it. Implements `kernels.backend.PackedAdapter`.

    `matrices` point into `arrays`: keep both for as long as a slot holds the adapter.
    """

    matrices: ctypes.Array[LowRankArgs]  # [num_layers · 4]: qkv, o, gate_up, down of each layer
    arrays: tuple[BFloat16s, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all its matrices."""
        return sum(array.nbytes for array in self.arrays)


def pack_adapter(spec: DecoderSpec, adapter: LoraAdapter) -> CpuAdapter:
    """Rounds an adapter to bfloat16 and lays it out.

    Raises ValueError, naming the matrix, for one that does not fit the model or is not finite.
    """
    check_adapter(spec, adapter)
    arrays: list[BFloat16s] = []
    matrices = (LowRankArgs * (spec.num_layers * len(_MATRICES)))()
    for i in range(len(matrices)):
        layer, matrix = divmod(i, len(_MATRICES))
        names = [f"layers.{layer}.{part}" for part in _MATRICES[matrix]]
        parts = [(name, adapter.matrices.get(name)) for name in names]
        if all(low_rank is None for _, low_rank in parts):
            continue
        a = _stacked(parts)
        arrays.append(a)
        matrices[i].a = a.ctypes.data
        for j, (name, low_rank) in enumerate(parts):
            if low_rank is None:
                continue
            b = _blocks(_bfloat16(name, low_rank.b))
            arrays.append(b)
            matrices[i].parts[j] = _PartArgs(b.ctypes.data, low_rank.rank)
    return CpuAdapter(matrices, tuple(arrays))


def _stacked(parts: Iterable[tuple[str, LowRank | None]]) -> BFloat16s:
    """A of all parts, [sum of ranks, columns padded with zeros]."""
    rows = [_bfloat16(name, low_rank.a) for name, low_rank in parts if low_rank is not None]
    stacked = np.concatenate(rows)
    return np.pad(stacked, ((0, 0), (0, -stacked.shape[1] % COL_UNIT)))


def _blocks(b: BFloat16s) -> BFloat16s:
    """B [out, rank] as [blocks, rank, 32], outputs padded with zeros."""
    padded = np.pad(b, ((0, -len(b) % BLOCK_ROWS), (0, 0)))
    blocks = padded.reshape(-1, BLOCK_ROWS, b.shape[1])
    return np.ascontiguousarray(blocks.transpose(0, 2, 1))


def _bfloat16(name: str, values: Float32s) -> BFloat16s:
    """Values rounded to nearest, ties to even. Raises ValueError if one is not finite then."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    if not ((rounded & 0x7F80) != 0x7F80).all():
        raise ValueError(f"the adapter's matrices for {name} have values that are not finite")
    return rounded
