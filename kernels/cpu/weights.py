"""A decoder's weights as the C++ kernels read them, and how they get there.

source ──▶ one weight at a time, checked ──▶ octavo_pack_rows ──▶ its place in the buffer
"""

from __future__ import annotations

import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kernels.backend import StoredTensor
from kernels.coded import rows_at_a_time
from kernels.cpu.coded_blocks import as_packable
from kernels.cpu.matrix import BLOCK_ROWS
from kernels.cpu.packing import (
    Destination,
    MatrixFormat,
    NotFiniteError,
    pack_rows,
    packs_as_stored,
)
from kernels.cpu.weight_layout import plan_weights

if TYPE_CHECKING:
    import numpy.typing as npt

    from kernels.backend import Float32s, OnProgress, Precision, WeightSource
    from kernels.coded import CodedTensor
    from kernels.cpu.library import Library
    from kernels.cpu.weight_cache import WeightCache
    from kernels.cpu.weight_layout import MatrixPart, WeightLayout
    from kernels.spec import DecoderSpec

    Bytes: TypeAlias = npt.NDArray[np.uint8]

_HUGE_PAGE = 2 << 20  # bytes
_DECODED_VALUES = 1 << 20  # at a time and thread, of types that the packer does not read


@dataclass(frozen=True, slots=True)
class MatrixView:
    """A packed matrix in memory, which `CpuWeights` owns: PackedMatrix of src/matrix.h."""

    address: int
    bias_address: int | None
    format: MatrixFormat
    group: int
    num_blocks: int
    cols: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class CpuWeights:
    """All weights, in one buffer."""

    layout: WeightLayout
    buffer: Bytes

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return self.layout.total_bytes

    def matrix(self, name: str) -> MatrixView:
        """layers.<i>.qkv, .o, .gate_up or .down; head; embed, unless the head is tied to it."""
        slot = self.layout.matrices[name]
        base = int(self.buffer.ctypes.data)
        return MatrixView(
            address=base + slot.offset,
            bias_address=None if slot.bias_offset is None else base + slot.bias_offset,
            format=slot.format,
            group=slot.group,
            num_blocks=slot.num_blocks,
            cols=slot.cols,
            block_bytes=slot.block_bytes,
        )

    def norm(self, name: str) -> Float32s:
        """The factors of a norm, by its canonical name; what the spec adds to them is added."""
        slot = self.layout.norms[name]
        return _floats(self.buffer, slot.offset, slot.length)

    def bias(self, name: str) -> Float32s | None:
        """The biases of a matrix, [num_blocks · 32], 0 for rows that fill up a block."""
        slot = self.layout.matrices[name]
        if slot.bias_offset is None:
            return None
        return _floats(self.buffer, slot.bias_offset, slot.num_blocks * BLOCK_ROWS)


def load_weights(
    library: Library,
    spec: DecoderSpec,
    source: WeightSource,
    precision: Precision,
    on_progress: OnProgress,
    *,
    num_threads: int,
    cache: WeightCache | None = None,
) -> CpuWeights:
    """Reads every weight of `spec.weight_shapes()` once and packs it, or takes all from `cache`.

    Only what took work to pack is cached. Raises ValueError that names the weight if its shape is
    not the spec's or a value is not finite in the format that it is packed in.
    """
    layout = plan_weights(spec, source, precision)
    weights = CpuWeights(layout, empty_buffer(layout.total_bytes))
    if not layout.takes_work:
        cache = None
    if cache is not None and cache.load(layout, weights.buffer, on_progress, num_threads):
        return weights
    packer = _Packer(library, spec, source, weights, on_progress, num_threads)
    for name in layout.matrices:
        packer.pack_matrix(name)
    for name in layout.norms:
        packer.copy_norm(name)
    if cache is not None:
        cache.store(layout, weights.buffer, num_threads)
    return weights


def empty_buffer(num_bytes: int) -> Bytes:
    """Zero bytes at an address that huge pages fit, in huge pages if the system gives them.

    A decoder reads all weights in each step: with pages of 4 KiB it would wait for address
    translation as well as for memory.
    """
    if sys.platform != "linux":
        return np.zeros(num_bytes, np.uint8)
    # Private: the kernel gives huge pages to anonymous memory, and seldom to what may be shared.
    memory = mmap.mmap(-1, num_bytes + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    buffer = np.frombuffer(memory, np.uint8)
    start = -int(buffer.ctypes.data) % _HUGE_PAGE
    return buffer[start : start + num_bytes]


def _floats(buffer: Bytes, offset: int, length: int) -> Float32s:
    return buffer[offset : offset + 4 * length].view(np.float32)


class _Packer:
    """Takes weights from a source into their places, and reports how far it is."""

    def __init__(
        self,
        library: Library,
        spec: DecoderSpec,
        source: WeightSource,
        weights: CpuWeights,
        on_progress: OnProgress,
        num_threads: int,
    ) -> None:
        self._library = library
        self._shapes = spec.weight_shapes()
        self._norm_offset = spec.norm_offset
        self._source = source
        self._weights = weights
        self._on_progress = on_progress
        self._num_threads = num_threads
        self._bytes_done = 0

    def pack_matrix(self, name: str) -> None:
        slot = self._weights.layout.matrices[name]
        view = self._weights.matrix(name)
        bias = self._weights.bias(name)
        for part in slot.parts:
            to = Destination(
                view.address, slot.format, slot.group, part.first_block, part.block_step
            )
            self._pack(part.name, self._load(part.name), to)
            if part.bias is not None and bias is not None:
                _place_bias(self._vector(part.bias), part, bias.reshape(-1, BLOCK_ROWS))

    def copy_norm(self, name: str) -> None:
        self._weights.norm(name)[:] = self._vector(name) + np.float32(self._norm_offset)

    def _load(self, name: str) -> StoredTensor | CodedTensor:
        found = self._source.load(name)
        expected = self._shapes[name]
        if tuple(found.shape) != expected:
            raise ValueError(
                f"weight {name} has shape {list(found.shape)}, the model needs {list(expected)}"
            )
        return found

    def _done(self, found: StoredTensor | CodedTensor) -> None:
        self._bytes_done += found.nbytes
        self._on_progress(self._bytes_done, self._source.total_bytes)

    def _vector(self, name: str) -> Float32s:
        found = self._load(name)
        values = found.to_float32()
        if not np.isfinite(values).all():
            raise ValueError(f"weight {name} has values that are not finite")
        self._done(found)
        return values

    def _pack(self, name: str, found: StoredTensor | CodedTensor, to: Destination) -> None:
        try:
            if isinstance(found, StoredTensor) and packs_as_stored(found.scheme):
                pack_rows(self._library, found, to, self._num_threads)
            else:
                self._pack_by_rows(name, found, to)
        except NotFiniteError as error:
            raise ValueError(f"weight {name} has values that are {error}") from error
        self._done(found)

    def _pack_by_rows(self, name: str, found: StoredTensor | CodedTensor, to: Destination) -> None:
        """Decodes some rows at a time, so that a large matrix is never whole in float32."""
        num_rows, cols = found.shape
        step = rows_at_a_time(cols, _DECODED_VALUES)

        def pack_from(start: int) -> None:
            first = to.first_block + start // BLOCK_ROWS * to.block_step
            try:
                pack_rows(
                    self._library,
                    _packable(found, start, min(start + step, num_rows), to.format),
                    Destination(to.address, to.format, to.group, first, to.block_step),
                    num_threads=1,
                )
            except NotFiniteError as error:
                rest = f" of those from row {start} on" if start else ""
                raise ValueError(f"weight {name} has values that are {error}{rest}") from error

        with ThreadPoolExecutor(self._num_threads) as pool:
            for _ in pool.map(pack_from, range(0, num_rows, step)):
                pass  # each raises what went wrong in it


def _packable(
    found: StoredTensor | CodedTensor, start: int, stop: int, format_: MatrixFormat
) -> StoredTensor:
    """Some rows in a scheme that the packer reads."""
    if not isinstance(found, StoredTensor):
        return as_packable(found.scheme, found.rows(start, stop), format_)
    rows = found.data.reshape(found.shape[0], -1)[start:stop]
    some = StoredTensor(found.scheme, (len(rows), found.shape[1]), rows.reshape(-1))
    values = some.to_float32()
    return StoredTensor("F32", values.shape, values.reshape(-1).view(np.uint8))


def _place_bias(values: Float32s, part: MatrixPart, grid: Float32s) -> None:
    """Copies a part's biases to the rows of its blocks; `grid` is [num_blocks, 32]."""
    padded = np.zeros((part.num_blocks, BLOCK_ROWS), np.float32)
    padded.reshape(-1)[: len(values)] = values
    end = part.first_block + part.num_blocks * part.block_step
    grid[part.first_block : end : part.block_step] = padded
