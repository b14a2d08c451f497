"""One decoder, one set of flags, one memory: what start-up would plan there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine_svc.memory import MemoryPlan, fixed_bytes, plan_memory, token_arithmetic
from engine_svc.planning.decoder import (
    Computation,
    choose_computation,
    decoder_needs,
    pool_request,
    step_tokens,
)
from engine_svc.planning.sharding import part_of, shard_of, sharding_notices
from kernels.coded import keeps_codes

if TYPE_CHECKING:
    from engine_svc.config import Settings
    from engine_svc.loader.opened import OpenedModel
    from engine_svc.planning.target import Target
    from kernels.backend import MemoryNeeds
    from kernels.sharding import Shard
    from kernels.spec import DecoderSpec

_FLOAT32_BYTES = 4
_GPU_NOTICE = (
    "on a GPU weights, KV and activations are held in 16 bit, but for a checkpoint's 4-bit and "
    "fp8 codes; int8 and int4 by flag are only sizes; CUDA's own memory is in the share left out"
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is planned, and for what."""

    settings: Settings
    opened: OpenedModel
    target: Target
    num_ranks: int = 1

    def with_model(self, **changes: Any) -> Scenario:
        """The same with other fields of `ModelConfig`."""
        model = replace(self.settings.model, **changes)
        return replace(self, settings=replace(self.settings, model=model))

    def with_cache(self, **changes: Any) -> Scenario:
        """The same with other fields of `CacheConfig`."""
        cache = replace(self.settings.cache, **changes)
        return replace(self, settings=replace(self.settings, cache=cache))

    def with_batch(self, **changes: Any) -> Scenario:
        """The same with other fields of `BatchConfig`."""
        batch = replace(self.settings.batch, **changes)
        return replace(self, settings=replace(self.settings, batch=batch))

    @property
    def wanted_len(self) -> int:
        """Tokens of a context, if it fits."""
        return self.settings.model.max_model_len or self.opened.max_position


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a scenario takes of each rank, whether or not it fits. Sizes are in bytes."""

    scenario: Scenario
    computation: Computation
    spec: DecoderSpec  # of a rank
    needs: MemoryNeeds
    step_tokens: int  # most tokens of a step

    @property
    def fixed(self) -> int:
        """All but the KV pool."""
        return fixed_bytes(self.needs)

    @property
    def room(self) -> int:
        """What is left for the KV pool; negative where there is not even that."""
        return self.scenario.target.available.num_bytes - self.fixed

    @property
    def kv_per_token(self) -> int:
        """KV of one token over all layers."""
        return self.needs.kv_per_block // self.scenario.settings.cache.block_size

    @property
    def kv_arithmetic(self) -> str:
        """The product that `kv_per_token` is, for people."""
        element_bytes = self.computation.kv_element_bytes
        return token_arithmetic(self.kv_per_token, self.spec, element_bytes)

    @property
    def description(self) -> str:
        """In which types, for people."""
        if not self.scenario.target.is_gpu:
            return self.computation.description
        precision = self.computation.precision
        weights = {"auto": "as stored", "none": "16 bit"}.get(precision.weights, precision.weights)
        kv_cache = "16 bit" if precision.kv_cache == "auto" else precision.kv_cache
        return f"sized with weights {weights}, KV {kv_cache}"

    @property
    def notices(self) -> tuple[str, ...]:
        """What to know of these sizes."""
        ranks = sharding_notices(self.scenario.opened.spec, self.scenario.num_ranks)
        own = (_GPU_NOTICE,) if self.scenario.target.is_gpu else self.computation.notices
        return (*self.scenario.opened.notices, *own, *ranks)


def measure(scenario: Scenario) -> Sizes:
    """Sizes a scenario. Raises ConfigError for flags that do not go together."""
    opened, settings = scenario.opened, scenario.settings
    shard = shard_of(opened.spec, scenario.num_ranks)
    if scenario.num_ranks > 1 and not scenario.target.is_gpu:
        return _measure_ranks(scenario, shard)
    rank = part_of(opened, shard)
    if scenario.target.is_gpu:
        settings = _as_on_gpu(scenario)
    computation = choose_computation(settings, rank)
    needs = decoder_needs(settings, rank, computation)
    if scenario.target.is_gpu and scenario.settings.cache.dtype == "fp8":
        needs = replace(needs, kv_per_block=needs.kv_per_block // 2)
    # Tokens are picked from whole rows of logits, which are gathered; and rows of all are summed.
    num_tokens = step_tokens(settings, opened)
    shared = num_tokens * (opened.spec.vocab_size - rank.spec.vocab_size) * _FLOAT32_BYTES
    if (ranks := scenario.num_ranks) > 1:
        shared += num_tokens * rank.spec.hidden_size * (2 * ranks + _FLOAT32_BYTES)
    needs = replace(needs, activations=needs.activations + shared)
    return Sizes(scenario, computation, rank.spec, needs, num_tokens)


def _as_on_gpu(scenario: Scenario) -> Settings:
    """Settings by which the C++ back end counts what the GPU's takes."""
    model, opened = scenario.settings.model, scenario.opened
    keeps = any(
        len(shape) == 2 and keeps_codes([opened.source.scheme(name)], shape[1])
        for name, shape in opened.spec.weight_shapes().items()
    )
    changes: dict[str, Any] = {"device": "cpu"}
    if model.dtype in ("auto", "float16"):
        changes["dtype"] = "bfloat16"  # all 16-bit types take the same
    if model.quantization in ("auto", opened.quantization) and not keeps:
        changes["quantization"] = "none"  # quantised files are decoded
    settings = scenario.with_model(**changes).settings
    if settings.cache.dtype == "fp8":  # counted as half of this
        settings = replace(settings, cache=replace(settings.cache, dtype="auto"))
    return settings


def _measure_ranks(scenario: Scenario, shard: Shard) -> Sizes:
    """Sizes of ranks on CPUs, by the back end that would run them."""
    from kernels.collectives import Absent  # with it comes torch

    settings, opened = scenario.settings, scenario.opened
    computation = choose_computation(settings, opened, collectives=Absent(0, shard.num_ranks))
    needs = decoder_needs(settings, opened, computation, shard.spec)
    return Sizes(scenario, computation, shard.spec, needs, step_tokens(settings, opened))


def fit(sizes: Sizes) -> MemoryPlan:
    """The plan that start-up makes of these sizes. Raises DoesNotFitError."""
    scenario = sizes.scenario
    pool = pool_request(scenario.settings, scenario.opened)
    pool = replace(pool, takes_all=scenario.target.is_gpu)
    return plan_memory(sizes.needs, scenario.target.available, pool)
