"""The back end that plain torch makes: every model, everywhere torch runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.backend import MemoryNeeds
from kernels.reference.decoder import ReferenceDecoder
from kernels.reference.kv_ops import choose_kv_ops
from kernels.reference.linear import HEAD_TILES, LAYER_TILES, RowTiles, packs
from kernels.reference.weights import load_weights, planned_bytes

if TYPE_CHECKING:
    from kernels.backend import OnProgress, WeightSource
    from kernels.cpu.library import Library
    from kernels.spec import DecoderSpec

_FLOAT32_BYTES = 4


class ReferenceBackend:
    """Makes `ReferenceDecoder`s. Implements `kernels.backend.Backend`."""

    name = "reference"

    def __init__(self, library: Library | None) -> None:
        """`library` is what `kernels.cpu.library.load` gave; without it attention runs in torch."""
        self._library = library

    @property
    def description(self) -> str:
        """One line for the start-up print."""
        products = "oneDNN-packed" if packs(torch.bfloat16) else "plain"
        attention = "torch" if self._library is None else f"C++ ({self._library.isa})"
        return (
            f"torch {torch.__version__}, {products} matrices in row tiles of proved equality, "
            f"attention in {attention}, {torch.get_num_threads()} threads"
        )

    def plan(
        self,
        spec: DecoderSpec,
        dtype: torch.dtype,
        *,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,  # noqa: ARG002 (the seam's; a step's tokens bound its rows of logits)
    ) -> MemoryNeeds:
        """What `load` with the same arguments will take, whatever the weights' file format."""
        kv_ops = choose_kv_ops(self._library, spec, dtype, block_size)
        rope_kinds = len({layer.rope for layer in spec.layers})
        tables = rope_kinds * spec.max_position * spec.head_dim * dtype.itemsize
        kv_elements = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * block_size
        return MemoryNeeds(
            weights=planned_bytes(spec, dtype) + tables,
            activations=max(
                _step_peak(spec, dtype, max_num_batched_tokens, gathers=kv_ops.gathers),
                _load_peak(spec, dtype),
            ),
            kv_per_block=kv_elements * dtype.itemsize,
        )

    def load(
        self, spec: DecoderSpec, source: WeightSource, dtype: torch.dtype, on_progress: OnProgress
    ) -> ReferenceDecoder:
        """Loads and packs the weights; quantised ones are dequantised to `dtype` once.

        Raises ValueError that names the weight if its shape or a value is wrong.
        """
        weights = load_weights(spec, source, dtype, on_progress)
        return ReferenceDecoder(spec, dtype, weights, self._library)


def _step_peak(spec: DecoderSpec, dtype: torch.dtype, num_tokens: int, *, gathers: bool) -> int:
    """Bytes of a step over `num_tokens` tokens that asks for the logits of all of them."""
    rows = RowTiles(LAYER_TILES).padded(num_tokens)
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    attention = (q + 2 * kv) + 2 * (q + kv) + 2 * q  # qkv; rope's two terms; attended, twice
    mlp = 3 * inner  # gate, up and their product
    per_row = (3 * hidden + max(attention, mlp)) * dtype.itemsize
    per_row += 3 * max(hidden, q + kv) * _FLOAT32_BYTES  # a norm at work
    tile = LAYER_TILES[-1] * max(q + 2 * kv, 2 * inner, hidden) * dtype.itemsize
    logits = num_tokens * spec.vocab_size * _FLOAT32_BYTES
    head_tile = HEAD_TILES[-1] * spec.vocab_size * dtype.itemsize
    # Keys and values of one request, once as they are in the cache and twice in float32.
    gathered = 2 * spec.max_position * kv * (dtype.itemsize + 2 * _FLOAT32_BYTES)
    layers = rows * per_row + tile + (gathered if gathers else 0)
    return max(layers, rows * hidden * dtype.itemsize + logits + head_tile)


def _load_peak(spec: DecoderSpec, dtype: torch.dtype) -> int:
    """Bytes beside the packed weights while the largest is read: dequantised, and rounded."""
    fused = spec.hidden_size * max(
        spec.vocab_size,
        2 * spec.intermediate_size,
        (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim,
    )
    return fused * (_FLOAT32_BYTES + dtype.itemsize)
