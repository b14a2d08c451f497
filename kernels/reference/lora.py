"""What LoRA adapters add to the products of a step (arXiv:2106.09685; the formula: `kernels.lora`).

held matrix    qkv               o      gate_up           down
A              q, k, v stacked   o      gate, up stacked  down      x·Aᵀ of the adapter's rows, once
B              q   k   v         o      gate   up         down      each adds to its own columns

    y[rows, columns] += (x[rows]·Aᵀ)·Bᵀ        x: what the held matrix multiplied

Both products are summed, then rounded to the model's type; so is the sum with y, which was rounded
already. A and B are held in that type too.

The rows of an adapter go through its products by themselves, in row tiles that were proved for its
shapes when it was packed (`kernels.reference.linear`): a row's bits depend on nothing beside it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from kernels.reference.linear import DenseLinear, RowTiles, pack, prove_tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from kernels.backend import PackedAdapter, StepInputs
    from kernels.lora import LoraAdapter
    from kernels.reference.linear import Linear
    from kernels.spec import DecoderSpec

    _MakeLinear: TypeAlias = Callable[[torch.Tensor, torch.Tensor | None], Linear]

_HELD = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}
_TILES = (1, 8, 16, 32, 64, 128, 256)  # fewer than of layers: rows of padding cost little here
_MOST_ROWS = 1024  # at once where nothing else limits them; a step's logits take more memory


@dataclass(frozen=True, slots=True)
class _Part:
    """One matrix of those that are held as one."""

    ranks: slice  # its columns of x·Aᵀ
    columns: slice  # its columns of y
    b: Linear  # [out, rank]


@dataclass(frozen=True, slots=True)
class Addition:
    """What is added to the product of one held matrix."""

    a: Linear  # [sum of the parts' ranks, in]
    parts: tuple[_Part, ...]


@dataclass(frozen=True, slots=True)
class TorchAdapter:
    """An adapter as torch's decoders take it. Implements `kernels.backend.PackedAdapter`."""

    layers: tuple[Mapping[str, Addition], ...]  # by held matrix, of those that it changes
    tiles: RowTiles | None  # None: products take any number of rows

    @property
    def nbytes(self) -> int:
        """Bytes of all its matrices."""
        return sum(
            addition.a.nbytes + sum(part.b.nbytes for part in addition.parts)
            for layer in self.layers
            for addition in layer.values()
        )


def lay_out(
    spec: DecoderSpec,
    adapter: LoraAdapter,
    make_a: Callable[[torch.Tensor], Linear],
    make_b: Callable[[torch.Tensor], Linear],
) -> tuple[dict[str, Addition], ...]:
    """`TorchAdapter.layers` of an adapter that fits the spec; matrices are made of float32 ones."""
    shapes = spec.weight_shapes()
    layers = []
    for index in range(spec.num_layers):
        layer = {}
        for held, names in _HELD.items():
            stacked, parts = [], []
            rank = column = 0
            for name in (f"layers.{index}.{each}" for each in names):
                columns = slice(column, column + shapes[name][0])
                column = columns.stop
                if (matrix := adapter.matrices.get(name)) is None:
                    continue
                ranks = slice(rank, rank + matrix.rank)
                rank = ranks.stop
                stacked.append(torch.tensor(matrix.a))
                parts.append(_Part(ranks, columns, make_b(torch.tensor(matrix.b))))
            if parts:
                layer[held] = Addition(make_a(torch.cat(stacked)), tuple(parts))
        layers.append(layer)
    return tuple(layers)


def check_finite(adapter: LoraAdapter, dtype: torch.dtype) -> None:
    """Raises ValueError, naming the matrix, for values that are not finite in a type."""
    for name, matrix in adapter.matrices.items():
        if not all(torch.tensor(each).to(dtype).isfinite().all() for each in (matrix.a, matrix.b)):
            kind = str(dtype).removeprefix("torch.")
            raise ValueError(
                f"the adapter's matrices for {name} have values that are not finite in {kind}"
            )


class AdapterPacker:
    """Packs adapters for products on a CPU. Several threads may use one."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._lock = threading.Lock()  # of the proofs, which are dear and alike for most adapters
        self._proofs: dict[tuple[_MakeLinear, tuple[int, int]], RowTiles] = {}

    @torch.inference_mode()
    def pack(self, spec: DecoderSpec, adapter: LoraAdapter) -> TorchAdapter:
        """An adapter that fits the spec, with row tiles that are proved for all of it."""
        sizes = set(_TILES)

        def make_a(a: torch.Tensor) -> Linear:
            # Packing pads outputs to blocks, and A has few: only where torch's own product of this
            # width has other bits from row to row.
            make: _MakeLinear = DenseLinear
            if self._proved(make, a).largest == 1:
                make = pack
            sizes.intersection_update(self._proved(make, a).sizes)
            return make(a.to(self._dtype), None)

        def make_b(b: torch.Tensor) -> Linear:
            sizes.intersection_update(self._proved(pack, b).sizes)
            return pack(b.to(self._dtype))

        layers = lay_out(spec, adapter, make_a, make_b)
        return TorchAdapter(layers, RowTiles(tuple(sorted(sizes)) or (1,)))

    def _proved(self, make: _MakeLinear, weight: torch.Tensor) -> RowTiles:
        key = make, (weight.shape[0], weight.shape[1])
        with self._lock:
            if key not in self._proofs:
                self._proofs[key] = prove_tiles([key[1]], _TILES, self._dtype, make)
            return self._proofs[key]


@dataclass(frozen=True, slots=True)
class _AdaptedRows:
    adapter: TorchAdapter
    rows: torch.Tensor  # int64 [num_rows], of requests with the adapter
    padded: torch.Tensor  # the same, and the last again until they fill a tile


@dataclass(frozen=True, slots=True)
class StepAdapters:
    """The adapters of a step's rows."""

    adapted: Sequence[_AdaptedRows] = ()

    def add(self, layer: int, held: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Adds to y [rows, out], the product of x [rows, in] with a held matrix; returns y."""
        for each in self.adapted:
            if (addition := each.adapter.layers[layer].get(held)) is None:
                continue
            low = addition.a(x[each.padded])
            for part in addition.parts:
                added = part.b(low[:, part.ranks].contiguous())
                y[each.rows, part.columns] += added[: len(each.rows)]
        return y


NO_ADAPTERS = StepAdapters()


class AdapterSlots:
    """A decoder's adapters by their slots."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._adapters: dict[int, TorchAdapter] = {}

    def put(self, slot: int, adapter: PackedAdapter | None) -> None:
        """Fills a slot, or empties it. Raises TypeError for what another back end has packed."""
        if adapter is None:
            self._adapters.pop(slot, None)
        elif isinstance(adapter, TorchAdapter):
            self._adapters[slot] = adapter
        else:
            raise TypeError(f"a decoder on torch takes no {type(adapter).__name__}")

    def of_step(self, inputs: StepInputs) -> StepAdapters:
        """Which rows of a step take which adapter. Raises ValueError for an empty slot."""
        if inputs.adapters is None:
            return NO_ADAPTERS
        slots = inputs.adapters.tolist()
        slot_of_row = np.repeat(inputs.adapters, np.diff(inputs.query_start_loc))
        adapted = []
        for slot in sorted(set(slots) - {-1}):
            if (adapter := self._adapters.get(slot)) is None:
                raise ValueError(f"adapters[{slots.index(slot)}] is {slot}: the slot is empty")
            own = torch.from_numpy(np.flatnonzero(slot_of_row == slot))
            if self._device.type == "cuda":
                own = own.pin_memory()  # a step may be under way there, and shall not be waited for
            rows = own.to(self._device, non_blocking=True)
            adapted += _tiled(adapter, rows)
        return StepAdapters(adapted)


def _tiled(adapter: TorchAdapter, rows: torch.Tensor) -> list[_AdaptedRows]:
    """An adapter's rows, a tile at a time, so that what is added takes little memory."""
    if adapter.tiles is None:
        return [_AdaptedRows(adapter, some, some) for some in torch.split(rows, _MOST_ROWS)]
    found = []
    for tile in torch.split(rows, adapter.tiles.largest):
        padding = tile[-1:].expand(adapter.tiles.padded(len(tile)) - len(tile))
        found.append(_AdaptedRows(adapter, tile, torch.cat((tile, padding))))
    return found
