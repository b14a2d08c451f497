"""The back end for NVIDIA GPUs: Triton's kernels, CUDA graphs for decoding."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from kernels.backend import MemoryNeeds
from kernels.coded import FP8, keeps_codes, kept_bytes
from kernels.collectives import Single
from kernels.gpu.decoder import LOGIT_ROWS, SHARING_REQUESTS, GpuDecoder
from kernels.gpu.fp8_linear import multiplies_fp8
from kernels.gpu.graphs import graph_sizes
from kernels.gpu.launch_table import attention_launch
from kernels.gpu.linear import GpuLinear, coded_linear
from kernels.gpu.vendor_linear import VendorLinear
from kernels.reference.weights import load_weights
from kernels.sharding import Shard, ShardedWeights

if TYPE_CHECKING:
    from kernels.backend import OnProgress, Precision, WeightSource
    from kernels.collectives import Collectives
    from kernels.spec import DecoderSpec

_FLOAT32_BYTES = 4
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_STACKED = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",))  # matrices that are one product
_ALLOCATOR_SHARE = 1.1  # what graphs and the allocator keep beside live arrays


class GpuBackend:
    """Makes `GpuDecoder`s. Implements `kernels.backend.Backend`."""

    name = "cuda"

    def __init__(
        self,
        device: torch.device,
        *,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        collectives: Collectives | None = None,
        batch_invariant: bool = True,
        uses_graphs: bool = True,
    ) -> None:
        """`device` is a CUDA device, or the CPU where Triton interprets kernels.

        With `collectives` of several ranks, decoders are this rank's part of a model; the two
        numbers, which shape graphs and steps, are then the same on all ranks. Unless the bits of a
        row must be `batch_invariant`, the vendor's libraries multiply by dense and float8 weights.
        Without graphs decode steps launch kernel by kernel, as all others do.
        """
        self._device = device
        self._max_num_batched_tokens = max_num_batched_tokens
        self._max_num_seqs = max_num_seqs
        self._collectives = collectives or Single()
        self._batch_invariant = batch_invariant
        self._uses_graphs = uses_graphs

    @property
    def description(self) -> str:
        """One line for the start-up print."""
        products = "" if self._batch_invariant else ", products by cuBLAS"
        if self._device.type == "cpu":
            return f"Triton's interpreter, for tests{products}"
        major, minor = torch.cuda.get_device_capability(self._device)
        name = torch.cuda.get_device_name(self._device)
        graphs = "CUDA graphs for decoding" if self._uses_graphs else "no CUDA graphs"
        return f"Triton kernels on {name} (sm_{major}{minor}), {graphs}{products}"

    def multiplies_fp8(self, precision: Precision) -> bool:
        """Whether rows that meet fp8 weights are rounded to fp8 here, if the weights are for it."""
        return multiplies_fp8(self._device, _checked(precision)[0])

    def plan(
        self,
        spec: DecoderSpec,
        source: WeightSource,
        precision: Precision,
        *,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
    ) -> MemoryNeeds:
        """What `load` with the same arguments will take on the device. Raises ValueError alike."""
        dtype, kv_dtype = _checked(precision)
        ranks, vocab_size = self._collectives.size, spec.vocab_size
        spec, source = self._own(spec, source)
        rope_kinds = len({layer.rope for layer in spec.layers})
        tables = rope_kinds * spec.max_position * spec.head_dim * dtype.itemsize
        kv_elements = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * block_size
        split = attention_launch(self._device, spec.head_dim).split
        shared = min(SHARING_REQUESTS, max_num_seqs) * spec.num_heads
        shared *= -(-spec.max_position // split) * (spec.head_dim + 2) * _FLOAT32_BYTES
        # Graphs have memory of their own, beside that of steps without them.
        rows = max(max_num_batched_tokens, max_num_seqs)
        rows += graph_sizes(max_num_seqs)[-1] if self._uses_graphs else 0
        rounds = multiplies_fp8(self._device, dtype) and _has_fp8(spec, source, precision)
        step = _step_peak(spec, dtype, rows, rounds_rows=rounds)
        step += _shared_peak(spec, dtype, rows, ranks, vocab_size)
        return MemoryNeeds(
            weights=_weight_bytes(spec, source, precision, dtype) + tables,
            activations=int((step + shared) * _ALLOCATOR_SHARE),
            kv_per_block=kv_elements * kv_dtype.itemsize,
        )

    def load(
        self,
        spec: DecoderSpec,
        source: WeightSource,
        precision: Precision,
        on_progress: OnProgress,
    ) -> GpuDecoder:
        """Loads the weights onto the device; quantised ones are decoded to the dtype once.

        But for matrices of 4-bit and float8 codes, whose products take them as they are, unless
        `Precision.weights` is "none".

        Raises ValueError for a precision that the kernels do not have, and, naming the weight, if
        its shape or a value is wrong.
        """
        dtype, kv_dtype = _checked(precision)
        shard = self._shard(spec)
        spec, source = self._own(spec, source)
        make_coded = partial(
            coded_linear,
            device=self._device,
            dtype=dtype,
            batch_invariant=self._batch_invariant,
        )
        weights = load_weights(
            spec,
            source,
            dtype,
            on_progress,
            device=self._device,
            make_linear=GpuLinear if self._batch_invariant else VendorLinear,
            make_coded=make_coded if _keeps(precision) else None,
        )
        return GpuDecoder(
            shard,
            dtype,
            weights,
            self._device,
            max_num_batched_tokens=self._max_num_batched_tokens,
            max_num_seqs=self._max_num_seqs,
            uses_graphs=self._uses_graphs,
            kv_dtype=kv_dtype,
            collectives=self._collectives,
        )

    def _shard(self, spec: DecoderSpec) -> Shard:
        return Shard(spec, self._collectives.rank, self._collectives.size)

    def _own(self, spec: DecoderSpec, source: WeightSource) -> tuple[DecoderSpec, WeightSource]:
        """This rank's part of a model."""
        if self._collectives.size == 1:
            return spec, source
        shard = self._shard(spec)
        return shard.spec, ShardedWeights(source, shard)


def _checked(precision: Precision) -> tuple[torch.dtype, torch.dtype]:
    """The types of weights and activations, and of the KV cache."""
    if precision.dtype not in _DTYPES:
        raise ValueError(f"a GPU computes in {', '.join(_DTYPES)}, not in {precision.dtype}")
    if precision.weights not in ("auto", "none"):
        raise ValueError(
            f"a GPU holds weights in {precision.dtype} only, not in {precision.weights}"
        )
    dtype = _DTYPES[precision.dtype]
    if precision.kv_cache == "auto":
        return dtype, dtype
    if precision.kv_cache == "fp8":
        return dtype, torch.float8_e4m3fn
    raise ValueError(
        f"a GPU holds the KV cache in {precision.dtype} or fp8, not in {precision.kv_cache}"
    )


def _keeps(precision: Precision) -> bool:
    """Whether codes stay codes."""
    return precision.weights != "none"


def _has_fp8(spec: DecoderSpec, source: WeightSource, precision: Precision) -> bool:
    matrices = (name for name, shape in spec.weight_shapes().items() if len(shape) == 2)
    return _keeps(precision) and any(source.scheme(name) == FP8 for name in matrices)


def _weight_bytes(
    spec: DecoderSpec, source: WeightSource, precision: Precision, dtype: torch.dtype
) -> int:
    """Bytes of all weights; of coded ones at most, as their groups are not known yet."""
    shapes, total = spec.weight_shapes(), 0.0
    together = {name: names for names in _STACKED for name in names}
    for name, shape in shapes.items():
        prefix, _, kind = name.rpartition(".")
        names = [f"{prefix}.{part}" for part in together.get(kind, ())]
        schemes = [source.scheme(each) for each in names or ([name] if kind == "lm_head" else [])]
        coded = _keeps(precision) and len(shape) == 2 and schemes
        kept = coded and keeps_codes(schemes, shape[1])
        total += math.prod(shape) * (kept_bytes(schemes, shape[1]) if kept else dtype.itemsize)
    return math.ceil(total)


def _step_peak(spec: DecoderSpec, dtype: torch.dtype, rows: int, *, rounds_rows: bool) -> int:
    """Bytes beside weights and KV of a step over so many rows, which products may round."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    attention = (q + 2 * kv) + q + hidden  # qkv, what was attended to, its projection
    mlp = 2 * inner + inner + hidden
    per_row = (2 * hidden + max(attention, mlp)) * dtype.itemsize  # the stream and its norm
    if rounds_rows:
        per_row += max(hidden, q, inner) + _FLOAT32_BYTES
    logits = 2 * min(rows, LOGIT_ROWS) * spec.vocab_size * _FLOAT32_BYTES
    return rows * per_row + logits


def _shared_peak(
    spec: DecoderSpec, dtype: torch.dtype, rows: int, ranks: int, vocab_size: int
) -> int:
    """Bytes beside those of a rank alone: what it has of others, rows of a sum and logits."""
    if ranks == 1:
        return 0
    summed = rows * spec.hidden_size * (ranks * dtype.itemsize + _FLOAT32_BYTES)
    # The parts, padded to the largest, and what they make.
    gathered = min(rows, LOGIT_ROWS) * (ranks * spec.vocab_size + vocab_size) * _FLOAT32_BYTES
    return summed + gathered
