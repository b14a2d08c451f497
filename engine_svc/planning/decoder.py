"""How a decoder is computed, and the memory that takes: start-up and `octavo plan` ask the same.

settings ─┐
opened ───┴▶ choose_computation ─▶ decoder_needs ─▶ plan_memory(…, pool_request)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from octavo.flags import QUANTIZED_CHECKPOINTS

from engine_svc.adapters.setup import max_rank_of
from engine_svc.backends import choose_backend, gpu_backend, has_kernels
from engine_svc.config import ConfigError
from engine_svc.devices import choose_device
from engine_svc.memory import PoolRequest
from engine_svc.planning.sharding import part_of, shard_of
from engine_svc.planning.stored_weights import kept_notice
from engine_svc.processor import choose_dtype, usable_cores
from kernels.backend import Precision
from kernels.cpu.backend import CpuBackend
from kernels.lora import adapter_elements

if TYPE_CHECKING:
    from engine_svc.config import ParallelConfig, Settings
    from engine_svc.loader.opened import OpenedModel
    from kernels.backend import Backend, MemoryNeeds
    from kernels.collectives import Collectives
    from kernels.cpu.weight_cache import WeightCache
    from kernels.spec import DecoderSpec

_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Computation:
    """In which types a model is computed, and by what."""

    precision: Precision
    backend: Backend
    dtype_notice: str | None  # where that is not what the model is stored in
    backend_notice: str | None  # where it is not the fastest one
    kept_notice: str | None = None  # how a quantised checkpoint's weights are held
    device_notice: str | None = None  # why a GPU that is there does not compute
    on_gpu: bool = False

    @property
    def notices(self) -> tuple[str, ...]:
        """What the operator should know."""
        own = (self.device_notice, self.dtype_notice, self.backend_notice, self.kept_notice)
        return tuple(notice for notice in own if notice is not None)

    @property
    def description(self) -> str:
        """One line for people."""
        precision, parts = self.precision, ""
        if precision.weights not in ("auto", "none"):
            parts += f", weights in {precision.weights}"
        if precision.kv_cache != "auto":
            parts += f", KV in {precision.kv_cache}"
        return f"computing in {precision.dtype}{parts}: {self.backend.description}"

    @property
    def adapter_element_bytes(self) -> int:
        """Bytes of one element of an adapter: back ends keep them in the type of activations."""
        return _ELEMENT_BYTES[self.precision.dtype]

    @property
    def kv_element_bytes(self) -> int:
        """Bytes of one element of a key or value."""
        eight_bit = self.precision.kv_cache in ("int8", "fp8")
        return 1 if eight_bit else _ELEMENT_BYTES[self.precision.dtype]


def choose_computation(
    settings: Settings,
    opened: OpenedModel,
    cache: WeightCache | None = None,
    collectives: Collectives | None = None,
) -> Computation:
    """What the flags ask for, as this machine can do it. Raises ConfigError.

    `cache` is for packed weights, `collectives` are a rank's of several.
    """
    _check_length(settings.model.max_model_len, opened)
    device, device_notice = choose_device(settings.model.device)
    if device == "cuda":
        return _on_gpu(settings, opened, collectives)
    ranks = 1 if collectives is None else collectives.size
    precision, dtype_notice = _precision(settings, opened, ranks)
    backend, backend_notice = choose_backend(
        opened.spec,
        precision,
        block_size=settings.cache.block_size,
        threads=settings.model.threads or _threads_of(settings.parallel),
        cache=cache,
        collectives=collectives,
    )
    packs = backend.name == CpuBackend.name
    kept = kept_notice(opened, precision, "cpu" if packs else "reference")
    return Computation(precision, backend, dtype_notice, backend_notice, kept, device_notice)


def _on_gpu(
    settings: Settings, opened: OpenedModel, collectives: Collectives | None
) -> Computation:
    """By Triton's kernels. Raises ConfigError."""
    asked = settings.model.dtype
    precision = Precision(
        _stored_dtype(opened) if asked == "auto" else asked,
        _weights(settings.model.quantization, opened),
        settings.cache.dtype,
    )
    backend = gpu_backend(
        max_num_batched_tokens=step_tokens(settings, opened),
        max_num_seqs=settings.batch.max_num_seqs,
        batch_invariant=settings.model.batch_invariant,
        uses_graphs=not settings.model.enforce_eager,
        collectives=collectives,
    )
    if collectives is not None:
        opened = part_of(opened, shard_of(opened.spec, collectives.size, collectives.rank))
    rounds = backend.multiplies_fp8(precision)
    kept = kept_notice(opened, precision, "cuda", multiplies_fp8=rounds)
    return Computation(precision, backend, None, None, kept, on_gpu=True)


def step_tokens(settings: Settings, opened: OpenedModel) -> int:
    """Most tokens of a step. Raises ConfigError."""
    return settings.batch.batched_tokens(settings.model.max_model_len or opened.max_position)


def decoder_needs(
    settings: Settings,
    opened: OpenedModel,
    computation: Computation,
    part: DecoderSpec | None = None,
) -> MemoryNeeds:
    """What the model will take. Raises ConfigError for what its back end cannot do.

    `part` is what one rank of several holds of `opened`, where that is the whole model.
    """
    num_tokens = step_tokens(settings, opened)
    try:
        needs = computation.backend.plan(
            opened.spec,
            opened.source,
            computation.precision,
            block_size=settings.cache.block_size,
            max_num_batched_tokens=num_tokens,
            max_num_seqs=settings.batch.max_num_seqs,
        )
    except ValueError as error:
        reasons = filter(None, (str(error), computation.backend_notice))
        raise ConfigError("; ".join(reasons)) from error
    return replace(needs, adapters=_adapter_bytes(settings, opened.spec, part, computation))


def _adapter_bytes(
    settings: Settings, whole: DecoderSpec, part: DecoderSpec | None, computation: Computation
) -> int:
    """All slots full, and where that is the same memory one more adapter while it is read.

    A slot has what goes with the rank's part of the weights; what is read is whole.
    """
    if not settings.adapters.enabled:
        return 0
    rank = max_rank_of(settings.adapters)
    slots = settings.adapters.num_slots * computation.adapter_element_bytes
    being_read = 0 if computation.on_gpu else _ELEMENT_BYTES["float32"]
    return slots * adapter_elements(part or whole, rank) + being_read * adapter_elements(
        whole, rank
    )


def pool_request(settings: Settings, opened: OpenedModel) -> PoolRequest:
    """What the flags ask of the KV pool."""
    return PoolRequest(
        block_size=settings.cache.block_size,
        max_num_seqs=settings.batch.max_num_seqs,
        model_len=opened.max_position,
        max_model_len=settings.model.max_model_len,
        memory_bytes=settings.cache.memory_bytes,
        num_blocks=settings.cache.num_blocks,
    )


def _check_length(asked: int | None, opened: OpenedModel) -> None:
    if asked is not None and asked > opened.max_position:
        raise ConfigError(
            f"--max-model-len {asked} is above the {opened.max_position} tokens that the model was "
            "made for"
        )


def _threads_of(parallel: ParallelConfig) -> int:
    """Threads of one rank, where those of a node share its cores."""
    return max(1, usable_cores() * parallel.num_nodes // parallel.num_ranks)


def _precision(settings: Settings, opened: OpenedModel, ranks: int) -> tuple[Precision, str | None]:
    """What the flags ask for, and a notice where that is not what the model is stored in."""
    weights, kv_cache = _weights(settings.model.quantization, opened), settings.cache.dtype
    if kv_cache == "fp8":
        raise ConfigError(
            "--kv-cache-dtype fp8: a CPU has no fp8 KV cache; "
            "--kv-cache-dtype int8 takes about as little memory"
        )
    asked, stored = settings.model.dtype, _stored_dtype(opened)
    if asked == "auto" and (weights in ("int8", "int4") or kv_cache == "int8"):
        # What computes with integers has bfloat16 between its matrices, on every processor.
        return Precision("bfloat16", weights, kv_cache), None
    kernels = ranks == 1 and has_kernels(opened.spec, settings.cache.block_size)
    dtype, notice = choose_dtype(asked, stored, has_kernels=kernels)
    return Precision(dtype, weights, kv_cache), notice


def _weights(asked: str, opened: OpenedModel) -> str:
    """`Precision.weights` of a flag, which may name how the checkpoint has to be quantised."""
    if asked not in QUANTIZED_CHECKPOINTS:
        return asked
    if opened.quantization is None:
        raise ConfigError(
            f"--quantization {asked}: the model is not quantised so ({opened.format}); "
            "--quantization int8 or int4 packs any model when it is loaded"
        )
    if opened.quantization != asked:
        raise ConfigError(
            f"--quantization {asked}: config.json says that the model is quantised by "
            f"{opened.quantization}; leave the flag out"
        )
    return "auto"


def _stored_dtype(opened: OpenedModel) -> str:
    """The type of the weights; quantised ones decode to float32 but carry less than 16 bits."""
    quantised = opened.file_bytes < 2 * opened.num_parameters
    return "bfloat16" if quantised and opened.dtype == "float32" else opened.dtype
