"""The back end that plain torch makes: every model, everywhere torch runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels.backend import MemoryNeeds
from kernels.collectives import Single
from kernels.reference.decoder import ReferenceDecoder
from kernels.reference.linear import HEAD_TILES, LAYER_TILES, RowTiles, packs
from kernels.reference.weights import load_weights, planned_bytes
from kernels.sharding import Shard, ShardedWeights

if TYPE_CHECKING:
    from kernels.backend import OnProgress, Precision, WeightSource
    from kernels.collectives import Collectives
    from kernels.spec import DecoderSpec

_FLOAT32_BYTES = 4
_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class ReferenceBackend:
    """Makes `ReferenceDecoder`s. Implements `kernels.backend.Backend`."""

    name = "reference"

    def __init__(self, threads: int, collectives: Collectives | None = None) -> None:
        """Sets the number of threads that torch uses, in the whole process.

        With `collectives` of several ranks, decoders are this rank's part of a model.
        """
        torch.set_num_threads(threads)
        self._collectives = collectives or Single()

    @property
    def description(self) -> str:
        """One line for the start-up print."""
        products = "oneDNN-packed" if packs(torch.bfloat16) else "plain"
        return (
            f"torch {torch.__version__}, {products} matrices in row tiles of proved equality, "
            f"{torch.get_num_threads()} threads"
        )

    def plan(
        self,
        spec: DecoderSpec,
        source: WeightSource,
        precision: Precision,
        *,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,  # noqa: ARG002 (the seam's; a step's tokens bound its rows of logits)
    ) -> MemoryNeeds:
        """What `load` with the same arguments will take. Raises ValueError as `load` does."""
        dtype = _checked_dtype(precision)
        ranks, vocab_size = self._collectives.size, spec.vocab_size
        spec, _ = self._own(spec, source)
        rope_kinds = len({layer.rope for layer in spec.layers})
        tables = rope_kinds * spec.max_position * spec.head_dim * dtype.itemsize
        kv_elements = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * block_size
        return MemoryNeeds(
            weights=planned_bytes(spec, dtype) + tables,
            activations=max(
                _step_peak(spec, dtype, max_num_batched_tokens)
                + _shared_peak(spec, dtype, max_num_batched_tokens, ranks, vocab_size),
                _load_peak(spec, dtype),
            ),
            kv_per_block=kv_elements * dtype.itemsize,
        )

    def load(
        self,
        spec: DecoderSpec,
        source: WeightSource,
        precision: Precision,
        on_progress: OnProgress,
    ) -> ReferenceDecoder:
        """Loads and packs the weights; quantised ones are dequantised to the dtype once.

        Raises ValueError for a precision that torch's operations do not have, and, naming the
        weight, if its shape or a value is wrong.
        """
        dtype = _checked_dtype(precision)
        shard = self._shard(spec)
        own, source = self._own(spec, source)
        weights = load_weights(own, source, dtype, on_progress)
        return ReferenceDecoder(shard, dtype, weights, self._collectives)

    def _shard(self, spec: DecoderSpec) -> Shard:
        return Shard(spec, self._collectives.rank, self._collectives.size)

    def _own(self, spec: DecoderSpec, source: WeightSource) -> tuple[DecoderSpec, WeightSource]:
        """This rank's part of a model."""
        if self._collectives.size == 1:
            return spec, source
        shard = self._shard(spec)
        return shard.spec, ShardedWeights(source, shard)


def _checked_dtype(precision: Precision) -> torch.dtype:
    if precision.dtype not in _DTYPES:
        raise ValueError(
            f"the reference back end computes in {', '.join(_DTYPES)}, not in {precision.dtype}"
        )
    if precision.weights not in ("auto", "none"):
        raise ValueError(
            f"the reference back end holds weights in {precision.dtype} only, not in "
            f"{precision.weights}"
        )
    if precision.kv_cache != "auto":
        raise ValueError(
            f"the reference back end holds the KV cache in {precision.dtype} only, not in "
            f"{precision.kv_cache}"
        )
    return _DTYPES[precision.dtype]


def _step_peak(spec: DecoderSpec, dtype: torch.dtype, num_tokens: int) -> int:
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
    layers = rows * per_row + tile + gathered
    return max(layers, rows * hidden * dtype.itemsize + logits + head_tile)


def _shared_peak(
    spec: DecoderSpec, dtype: torch.dtype, num_tokens: int, ranks: int, vocab_size: int
) -> int:
    """Bytes beside those of a rank alone: what it has of others, rows of a sum and logits."""
    if ranks == 1:
        return 0
    rows = RowTiles(LAYER_TILES).padded(num_tokens)
    summed = rows * spec.hidden_size * (ranks * dtype.itemsize + _FLOAT32_BYTES)
    # The parts, padded to the largest, and what they make.
    gathered = num_tokens * (ranks * spec.vocab_size + vocab_size) * _FLOAT32_BYTES
    return max(summed, gathered)


def _load_peak(spec: DecoderSpec, dtype: torch.dtype) -> int:
    """Bytes beside the packed weights while the largest is read: dequantised, and rounded."""
    fused = spec.hidden_size * max(
        spec.vocab_size,
        2 * spec.intermediate_size,
        (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim,
    )
    return fused * (_FLOAT32_BYTES + dtype.itemsize)
