"""What would make a model fit, or give it its whole context: each tried before it is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine_svc.config import ConfigError
from engine_svc.memory import AvailableMemory, DoesNotFitError, MemoryPlan, blocks_for
from engine_svc.planning.scenario import Scenario, Sizes, fit, measure
from engine_svc.planning.target import smallest_gpu

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORTEST_USE = 512  # tokens; a context below that helps nobody
_MIB = 1 << 20
_RANKS = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Way:
    """Flags that help, and what comes of them: bytes of weights, tokens of context and pool."""

    flags: str
    weight_bytes: int
    max_model_len: int
    pool_tokens: int


def ways_to_fit(sizes: Sizes, plan: MemoryPlan | None) -> tuple[Way, ...]:
    """What helps where a scenario does not fit (`plan` is None) or has less than its context."""
    if plan is not None and plan.max_model_len >= sizes.scenario.wanted_len:
        return ()
    served = plan.max_model_len if plan else 0
    found = []
    for flags, scenario in _candidates(sizes, fits=plan is not None):
        way = _tried(flags, scenario)
        if way is not None and way.max_model_len > served:
            found.append(way)
    if plan is None and not any(way.flags.startswith("--") for way in found):
        both = sizes.scenario.with_model(quantization="int4").with_cache(dtype="int8")
        if way := _tried("--quantization int4 --kv-cache-dtype int8", both):
            found.append(way)
    return tuple(found)


def _tried(flags: str, scenario: Scenario) -> Way | None:
    """What comes of a scenario; None if it does not fit either."""
    try:
        sizes = measure(scenario)
        plan = fit(sizes)
    except (ConfigError, DoesNotFitError):
        return None
    if plan.max_model_len < min(_SHORTEST_USE, scenario.wanted_len):
        return None
    return Way(flags, sizes.needs.weights, plan.max_model_len, plan.pool_tokens)


def _candidates(sizes: Sizes, *, fits: bool) -> Iterator[tuple[str, Scenario]]:
    scenario = sizes.scenario
    context = blocks_for(scenario.wanted_len, scenario.settings.cache.block_size)
    context_bytes = context * sizes.needs.kv_per_block
    if fits:
        pool = scenario.with_cache(memory_bytes=context_bytes, num_blocks=None)
        yield f"--kv-cache-memory-bytes {context_bytes}", pool
    else:
        yield from _smaller_pools(sizes, context_bytes)
        yield from _smaller_steps(scenario)
        yield from _smaller_weights(sizes)
    if scenario.settings.cache.dtype == "auto":
        yield "--kv-cache-dtype int8", scenario.with_cache(dtype="int8")
    yield from _more_memory(sizes, context_bytes)


def _smaller_pools(sizes: Sizes, context_bytes: int) -> Iterator[tuple[str, Scenario]]:
    """Where weights fit: a shorter context, and a pool of what is left or of one context."""
    scenario, cache = sizes.scenario, sizes.scenario.settings.cache
    room = max(sizes.room, 0) // sizes.needs.kv_per_block
    asked = cache.num_blocks
    if asked is None and cache.memory_bytes is not None:
        asked = cache.memory_bytes // sizes.needs.kv_per_block
    num_tokens = min(room, room if asked is None else asked) * cache.block_size
    if 0 < num_tokens < scenario.wanted_len:
        shorter = scenario.with_model(max_model_len=num_tokens)
        yield f"--max-model-len {num_tokens}", shorter
    if asked is None:
        return
    for num_blocks in dict.fromkeys((room, context_bytes // sizes.needs.kv_per_block)):
        if cache.num_blocks is not None:
            pool = scenario.with_cache(num_blocks=num_blocks or None)
            yield f"--num-gpu-blocks-override {num_blocks}", pool
        else:
            size = num_blocks * sizes.needs.kv_per_block
            yield f"--kv-cache-memory-bytes {size}", scenario.with_cache(memory_bytes=size or None)


def _smaller_weights(sizes: Sizes) -> Iterator[tuple[str, Scenario]]:
    """Types that take less than what is planned."""
    scenario = sizes.scenario
    others = {f"--quantization {t}": scenario.with_model(quantization=t) for t in ("int8", "int4")}
    if sizes.computation.precision.dtype == "float32":
        others = {"--dtype bfloat16": scenario.with_model(dtype="bfloat16")} | others
    for flags, other in others.items():
        way = _tried(flags, other)
        if way is not None and way.weight_bytes < sizes.needs.weights:
            yield flags, other


def _smaller_steps(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """The largest step that fits, by halves, as activations grow with it."""
    batch = scenario.settings.batch
    if not batch.chunked_prefill:
        yield "--enable-chunked-prefill", scenario.with_batch(chunked_prefill=True)
        return
    num_tokens = batch.batched_tokens(scenario.wanted_len) // 2
    while num_tokens >= batch.max_num_seqs:
        smaller = scenario.with_batch(max_num_batched_tokens=num_tokens)
        flags = f"--max-num-batched-tokens {num_tokens}"
        if _tried(flags, smaller) is not None:
            yield flags, smaller
            return
        num_tokens //= 2


def _more_memory(sizes: Sizes, context_bytes: int) -> Iterator[tuple[str, Scenario]]:
    """Memory in which one context of the wanted length fits, or more ranks."""
    scenario, target = sizes.scenario, sizes.scenario.target
    wanted = scenario.with_model(max_model_len=scenario.wanted_len)
    asked_len = scenario.settings.model.max_model_len
    length = "" if asked_len else f" with --max-model-len {wanted.wanted_len}"
    asked = scenario.settings.cache.memory_bytes or 0
    if scenario.settings.cache.num_blocks is not None:
        asked = scenario.settings.cache.num_blocks * sizes.needs.kv_per_block
    need = sizes.fixed + max(context_bytes, asked)
    if target.is_gpu:
        larger = smallest_gpu(need, target)
        if larger is not None:
            yield f"--gpu {larger.name}", replace(scenario, target=larger)
        for num_ranks in _RANKS:
            if num_ranks > scenario.num_ranks:
                flags = f"--tensor-parallel-size {num_ranks}"
                if _tried(flags, more := replace(scenario, num_ranks=num_ranks)) is not None:
                    yield flags, more
                    return
        return
    need = -(-need // _MIB) * _MIB
    if need > target.available.num_bytes:
        enough = replace(target, available=AvailableMemory(need, "memory"))
        yield f"memory of {need // _MIB}MiB{length}", replace(wanted, target=enough)
