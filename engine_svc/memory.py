"""Plans memory before anything is loaded, so that what cannot fit is refused rather than killed.

    ├────────────────────────── available ──────────────────────────┤
    ├─ weights ─┤─ activations ─┤─ adapters ─┤─ KV pool ─┤─ left free ┤

Available is what the system has free or what the tightest cgroup above this process still allows,
whichever is less. Page cache that the kernel can drop counts as free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine_svc.cgroups import cgroup_directories, read_number, read_statistic

if TYPE_CHECKING:
    from kernels.backend import MemoryNeeds
    from kernels.encoder import EncoderNeeds
    from kernels.spec import DecoderSpec

# The rest is for the page cache, other processes, and the fragmentation of ours.
_DEFAULT_POOL_SHARE = 0.5
_DEFAULT_POOL_LIMIT = 4 << 30
_KV_SCALE_BYTES = 4  # of a key or value in int8
# By version: the limit, the use, and what of the use is page cache that can be dropped.
_CGROUP_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


class DoesNotFitError(Exception):
    """The model, or one context of it, does not fit; the message has both numbers and the flag."""


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """Bytes that this process may still take, and what sets the bound."""

    num_bytes: int
    bound: str

    def shared_by(self, count: int) -> AvailableMemory:
        """The part of one of `count` processes that take as much each."""
        if count == 1:
            return self
        return AvailableMemory(
            self.num_bytes // count, f"one of {count} equal shares of {self.bound}"
        )


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """What was asked of the pool; None is unasked. Lengths are in tokens."""

    block_size: int
    max_num_seqs: int
    model_len: int  # the model's own limit
    max_model_len: int | None
    memory_bytes: int | None
    num_blocks: int | None
    takes_all: bool = False  # where nothing is asked: all that is left rather than a part of it


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the memory goes. Sizes are in bytes unless named otherwise."""

    available: AvailableMemory
    weights: int
    activations: int
    kv_per_block: int
    block_size: int  # tokens
    num_blocks: int
    max_model_len: int  # tokens
    notices: tuple[str, ...] = ()
    adapters: int = 0

    @property
    def pool_bytes(self) -> int:
        """Bytes of the KV pool."""
        return self.num_blocks * self.kv_per_block

    @property
    def pool_tokens(self) -> int:
        """Tokens that the KV pool holds."""
        return self.num_blocks * self.block_size

    @property
    def max_concurrency(self) -> float:
        """How many contexts of full length the pool holds."""
        return self.concurrency(self.max_model_len)

    def concurrency(self, num_tokens: int) -> float:
        """How many requests of `num_tokens` tokens the pool holds."""
        return self.num_blocks / blocks_for(num_tokens, self.block_size)


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold `num_tokens` tokens."""
    return -(-num_tokens // block_size)


def available_memory(system_available: int, root: Path = Path("/")) -> AvailableMemory:
    """The least of `system_available` (MemAvailable) and every cgroup limit minus its use.

    `root` is where /proc and /sys are. Files: kernel documentation, cgroup-v2.rst and
    cgroup-v1/memory.rst.
    """
    found = AvailableMemory(system_available, "available system memory")
    for version, directory in cgroup_directories("memory", root):
        limit_name, use_name, cache_key = _CGROUP_FILES[version]
        limit = read_number(directory / limit_name)
        use = read_number(directory / use_name)
        if limit is None or use is None:
            continue
        working_set = max(0, use - read_statistic(directory / "memory.stat", cache_key))
        left = max(0, limit - working_set)
        if left < found.num_bytes:
            found = AvailableMemory(left, f"left of the cgroup limit of {format_bytes(limit)}")
    return found


def plan_memory(needs: MemoryNeeds, available: AvailableMemory, pool: PoolRequest) -> MemoryPlan:
    """Sizes the KV pool and, where none was asked for, the context length.

    Raises DoesNotFitError when the weights, the pool as asked for, or one context do not fit.
    """
    fixed = fixed_bytes(needs)
    room = available.num_bytes - fixed
    if room < needs.kv_per_block:
        raise DoesNotFitError(
            f"the model takes {format_bytes(fixed)} ({format_bytes(needs.weights)} of weights, "
            f"{format_bytes(needs.activations)} of activations{_of_adapters(needs.adapters)}), but "
            f"{_describe(available)}; raise the memory limit, choose a smaller or quantised model, "
            f"or lower --max-num-batched-tokens{' or --max-loras' * bool(needs.adapters)}"
        )
    wanted_len = min(pool.max_model_len or pool.model_len, pool.model_len)
    context_blocks = blocks_for(wanted_len, pool.block_size)
    if pool.memory_bytes is not None and pool.memory_bytes < needs.kv_per_block:
        raise DoesNotFitError(
            f"a KV block of {pool.block_size} tokens takes {needs.kv_per_block} bytes, more than "
            f"the pool's {pool.memory_bytes}; raise --kv-cache-memory-bytes"
        )
    useful_blocks = context_blocks * pool.max_num_seqs  # more could never be used by requests
    num_blocks = min(_asked_blocks(needs, room, pool, context_blocks), useful_blocks)
    plan = MemoryPlan(
        available=available,
        weights=needs.weights,
        activations=needs.activations,
        kv_per_block=needs.kv_per_block,
        block_size=pool.block_size,
        num_blocks=num_blocks,
        max_model_len=wanted_len,
        adapters=needs.adapters,
    )
    if plan.pool_bytes > room:
        flag = "--num-gpu-blocks-override" if pool.num_blocks else "--kv-cache-memory-bytes"
        raise DoesNotFitError(
            f"the KV pool of {format_bytes(plan.pool_bytes)} beside {format_bytes(fixed)} of model "
            f"takes {format_bytes(plan.pool_bytes + fixed)}, but {_describe(available)}; "
            f"lower {flag}"
        )
    if num_blocks >= context_blocks:
        return plan
    if pool.max_model_len is not None:
        need = context_blocks * needs.kv_per_block
        raise DoesNotFitError(
            f"one context of {wanted_len} tokens needs {format_bytes(need)} of KV cache, but the "
            f"pool has {format_bytes(plan.pool_bytes)}, which is {plan.pool_tokens} tokens; lower "
            "--max-model-len or raise --kv-cache-memory-bytes"
        )
    notice = (
        f"context length reduced from {wanted_len} to the {plan.pool_tokens} tokens that the KV "
        "pool holds; --kv-cache-memory-bytes enlarges the pool"
    )
    return replace(plan, max_model_len=plan.pool_tokens, notices=(notice,))


def plan_encoder_memory(needs: EncoderNeeds, available: AvailableMemory) -> str:
    """The line that says where the memory of an encoder goes. Raises DoesNotFitError."""
    parts = (
        f"{format_bytes(needs.weights)} of weights, {format_bytes(needs.activations)} of "
        "activations"
    )
    if needs.weights + needs.activations > available.num_bytes:
        raise DoesNotFitError(
            f"the model takes {format_bytes(needs.weights + needs.activations)} ({parts}), but "
            f"{_describe(available)}; raise the memory limit, choose a smaller model, or lower "
            "--max-num-batched-tokens"
        )
    return f"memory: {_describe(available)}; {parts} at most, no KV cache"


def _asked_blocks(needs: MemoryNeeds, room: int, pool: PoolRequest, context_blocks: int) -> int:
    """Blocks of the pool before it is bounded by its use; `room` is in bytes."""
    if pool.num_blocks is not None:
        return pool.num_blocks
    if pool.memory_bytes is not None:
        return pool.memory_bytes // needs.kv_per_block
    if pool.takes_all:
        return room // needs.kv_per_block
    share = min(int(room * _DEFAULT_POOL_SHARE), _DEFAULT_POOL_LIMIT) // needs.kv_per_block
    if pool.max_model_len is not None:
        # A length that was asked for may take all the room, beyond the default share.
        return max(share, min(context_blocks, room // needs.kv_per_block))
    return max(share, 1)


def token_arithmetic(kv_per_token: int, spec: DecoderSpec, element_bytes: int) -> str:
    """The product that a token's KV bytes are, for people; empty where the layout is another.

    `element_bytes` is the size of one KV element.
    """
    num_vectors = 2 * spec.num_layers * spec.num_kv_heads
    vector_bytes = spec.head_dim * element_bytes
    counts = f"2 (K, V) × {spec.num_layers} layers × {spec.num_kv_heads} KV heads"
    elements = f"{spec.head_dim} elements × {element_bytes} byte{'s' if element_bytes > 1 else ''}"
    return {
        num_vectors * vector_bytes: f"{counts} × {elements}",
        num_vectors * (vector_bytes + _KV_SCALE_BYTES): (
            f"{counts} × ({elements} + {_KV_SCALE_BYTES} of scale)"
        ),
    }.get(kv_per_token, "")


def summary_lines(plan: MemoryPlan, spec: DecoderSpec, element_bytes: int) -> list[str]:
    """The plan for people: sizes, the arithmetic of a token's KV, and how many contexts fit.

    `element_bytes` is the size of one KV element.
    """
    per_token = plan.kv_per_block // plan.block_size
    arithmetic = token_arithmetic(per_token, spec, element_bytes)
    return [
        f"memory: {_describe(plan.available)}; weights {format_bytes(plan.weights)}, activations "
        f"up to {format_bytes(plan.activations)}{_of_adapters(plan.adapters, ' for adapters')}, "
        f"KV pool {format_bytes(plan.pool_bytes)}",
        f"KV per token: {per_token:,} bytes{arithmetic and f' = {arithmetic}'}",
        f"KV pool: {plan.num_blocks:,} blocks of {plan.block_size} tokens = {plan.pool_tokens:,} "
        "tokens",
        concurrency_line(plan.max_model_len, plan.max_concurrency),
    ]


def concurrency_line(num_tokens: int, concurrency: float) -> str:
    """How many requests of `num_tokens` tokens fit, worded as vLLM does."""
    return f"Maximum concurrency for {num_tokens:,} tokens per request: {concurrency:.2f}x"


def format_bytes(count: int) -> str:
    """A byte count for people, in binary units, for example "1.50 GiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.2f} {unit}"
    return f"{count} bytes"


def fixed_bytes(needs: MemoryNeeds) -> int:
    """What a decoder takes beside its KV pool."""
    return needs.weights + needs.activations + needs.adapters


def _of_adapters(num_bytes: int, words: str = " of adapters") -> str:
    return f", {format_bytes(num_bytes)}{words}" if num_bytes else ""


def _describe(available: AvailableMemory) -> str:
    return f"{format_bytes(available.num_bytes)} is free ({available.bound})"
