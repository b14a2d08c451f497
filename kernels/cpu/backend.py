"""The back end that C++ makes for CPUs: bfloat16, int8 and int4 weights, bfloat16 and int8 KV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.backend import MemoryNeeds
from kernels.cpu.decoder import CpuDecoder, kv_block_bytes
from kernels.cpu.library import load, require, unavailable_reason
from kernels.cpu.weight_layout import plan_weights
from kernels.cpu.weights import load_weights

if TYPE_CHECKING:
    from kernels.backend import OnProgress, Precision, WeightSource
    from kernels.cpu.weight_cache import WeightCache
    from kernels.spec import DecoderSpec

_MAX_HEAD_DIM = 256
_HEAD_DIM_UNIT = 8
_BLOCK_SIZE_UNIT = 16  # tokens
_FLOAT32_BYTES = 4


class CpuBackend:
    """Makes `CpuDecoder`s. Implements `kernels.backend.Backend`."""

    name = "cpu"

    def __init__(self, num_threads: int, cache: WeightCache | None = None) -> None:
        """Raises RuntimeError where the library is missing (`unsupported` says so beforehand)."""
        self._library = require()
        self._num_threads = num_threads
        self._cache = cache

    @staticmethod
    def unsupported(spec: DecoderSpec, precision: Precision, block_size: int) -> str | None:
        """Why this back end cannot run a model, as a clause for people, or None if it can."""
        if load() is None:
            return unavailable_reason()
        if precision.dtype != "bfloat16":
            return f"the C++ kernels compute in bfloat16, not in {precision.dtype}"
        if spec.head_dim % _HEAD_DIM_UNIT or spec.head_dim > _MAX_HEAD_DIM:
            return (
                f"the C++ kernels take heads of a multiple of {_HEAD_DIM_UNIT} up to "
                f"{_MAX_HEAD_DIM}, not of {spec.head_dim}"
            )
        if block_size % _BLOCK_SIZE_UNIT:
            return (
                f"the C++ kernels take KV blocks of a multiple of {_BLOCK_SIZE_UNIT} tokens, "
                f"not of {block_size}"
            )
        return None

    @property
    def description(self) -> str:
        """One line for the start-up print."""
        threads = f"{self._num_threads} thread" + ("s" if self._num_threads > 1 else "")
        return f"C++ ({self._library.isa}), {threads}"

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
        """What `load` with the same arguments will take."""
        return MemoryNeeds(
            weights=plan_weights(spec, source, precision).total_bytes,
            activations=_step_peak(spec, max_num_batched_tokens, self._num_threads),
            kv_per_block=kv_block_bytes(self._library, spec, _kv_dtype(precision), block_size),
        )

    def load(
        self,
        spec: DecoderSpec,
        source: WeightSource,
        precision: Precision,
        on_progress: OnProgress,
    ) -> CpuDecoder:
        """Loads and packs the weights, or maps them as they were packed before.

        Raises ValueError that names the weight if its shape or a value is wrong.
        """
        weights = load_weights(
            self._library,
            spec,
            source,
            precision,
            on_progress,
            num_threads=self._num_threads,
            cache=self._cache,
        )
        return CpuDecoder(
            self._library,
            spec,
            weights,
            num_threads=self._num_threads,
            kv_dtype=_kv_dtype(precision),
        )


def _kv_dtype(precision: Precision) -> str:
    return precision.dtype if precision.kv_cache == "auto" else precision.kv_cache


def _step_peak(spec: DecoderSpec, num_tokens: int, num_threads: int) -> int:
    """Bytes of a step over `num_tokens` tokens that asks for the logits of all of them."""
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    floats = 3 * spec.hidden_size + (q + 2 * kv) + q + spec.intermediate_size + spec.head_dim
    rows = max(spec.hidden_size, q, spec.intermediate_size)
    per_row = floats * _FLOAT32_BYTES + 4 * rows + num_threads * 64 * _FLOAT32_BYTES
    logits = spec.vocab_size * _FLOAT32_BYTES
    return num_tokens * (per_row + logits)
