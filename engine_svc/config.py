"""What an engine was asked to be, one small immutable record per concern.

The records come from parsed flags (`octavo.flags`) and are never changed; what start-up decides
(the context length that fits, the number of blocks) lives in records of its own.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.flags import engine_args
from octavo.tls import ServerTls, TlsError

from engine_svc.adapters.config import AdapterConfig, parse_adapters
from engine_svc.speculation.config import parse_speculative_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine_svc.speculation.config import SpeculationConfig

_DTYPE_ALIASES = {"half": "float16", "float": "float32"}
_DEFAULT_BATCHED_TOKENS = 512


class ConfigError(ValueError):
    """Flags that contradict each other; the message names them."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model, and how it is shown and run."""

    path: Path
    served_names: tuple[str, ...]  # empty: the model's own
    dtype: str  # auto, or a torch name
    quantization: str  # Precision.weights
    keeps_packed_weights: bool
    max_model_len: int | None
    use_generation_config: bool
    threads: int | None
    device: str  # auto, cpu or cuda
    batch_invariant: bool  # on a CPU answers are so in any case
    enforce_eager: bool  # a CPU has no graphs


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The KV pool."""

    block_size: int  # tokens
    dtype: str  # Precision.kv_cache
    memory_bytes: int | None
    num_blocks: int | None
    prefix_caching: bool
    gpu_memory_utilization: float  # of what is free there


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """What runs together and what may wait."""

    max_num_seqs: int
    max_num_batched_tokens: int | None
    target_step_seconds: float
    chunked_prefill: bool
    accepts_priority: bool
    max_num_queued_reqs: int
    max_num_queued_tokens: int
    speculative_config: str | None  # JSON

    def batched_tokens(self, model_len: int) -> int:
        """Most tokens of a step for contexts of `model_len` tokens. Raises ConfigError."""
        given = self.max_num_batched_tokens
        if self.chunked_prefill:
            budget = given or max(_DEFAULT_BATCHED_TOKENS, self.max_num_seqs)
        else:
            budget = given or max(model_len, self.max_num_seqs)
            if budget < model_len:
                raise ConfigError(
                    "without chunked prefill a prompt is one step: --max-num-batched-tokens "
                    f"{budget} is below the context length {model_len}; raise it, lower "
                    "--max-model-len, or drop --no-enable-chunked-prefill"
                )
        if budget < self.max_num_seqs:
            raise ConfigError(
                f"--max-num-batched-tokens {budget} is below --max-num-seqs {self.max_num_seqs}: "
                "a step could not give every running choice one token"
            )
        return budget

    def speculation(self) -> SpeculationConfig | None:
        """How to guess at next tokens, if at all. Raises ConfigError."""
        if self.speculative_config is None:
            return None
        try:
            return parse_speculative_config(self.speculative_config)
        except ValueError as error:
            raise ConfigError(f"--speculative-config {error}") from error


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The process around the engine. Durations are in seconds."""

    listen: str
    shutdown_timeout: float
    stall_timeout: float
    tls: ServerTls | None = None
    otlp_traces_endpoint: str | None = None
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex)  # of this process


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """What requests may ask for beyond what the model itself allows."""

    max_logprobs: int
    seed: int | None


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Ranks that share the model, and where this process stands among them."""

    num_ranks: int
    num_nodes: int = 1
    node_rank: int = 0
    master_addr: str | None = None
    master_port: int | None = None
    local_rank: int | None = None  # set for the ranks that a node's first one starts
    worker_args: tuple[str, ...] = ()  # the flags of an engine that those are started with


@dataclass(frozen=True, slots=True)
class Settings:
    """All of the above, as parsed."""

    model: ModelConfig
    cache: CacheConfig
    batch: BatchConfig
    service: ServiceConfig
    requests: RequestPolicy
    parallel: ParallelConfig
    adapters: AdapterConfig


def settings_from(path: Path, params: Mapping[str, Any]) -> Settings:
    """Sorts click's parameters (`engine_options` and `process_options`) into records."""
    dtype = params["dtype"]
    return Settings(
        model=ModelConfig(
            path=path,
            served_names=tuple(params["served_model_name"]),
            dtype=_DTYPE_ALIASES.get(dtype, dtype),
            quantization=params["quantization"],
            keeps_packed_weights=params["packed_weights_cache"],
            max_model_len=params["max_model_len"],
            use_generation_config=params["generation_config"] == "auto",
            threads=params["threads"],
            device=params["device"],
            batch_invariant=params["batch_invariant"],
            enforce_eager=params["enforce_eager"],
        ),
        cache=CacheConfig(
            block_size=params["block_size"],
            dtype=params["kv_cache_dtype"],
            memory_bytes=params["kv_cache_memory_bytes"],
            num_blocks=params["num_gpu_blocks_override"],
            prefix_caching=params["enable_prefix_caching"],
            gpu_memory_utilization=params["gpu_memory_utilization"],
        ),
        batch=BatchConfig(
            max_num_seqs=params["max_num_seqs"],
            max_num_batched_tokens=params["max_num_batched_tokens"],
            target_step_seconds=params["target_step_seconds"],
            chunked_prefill=params["enable_chunked_prefill"],
            accepts_priority=params["scheduling_policy"] == "priority",
            max_num_queued_reqs=params["max_num_queued_reqs"],
            max_num_queued_tokens=params["max_num_queued_tokens"],
            speculative_config=params["speculative_config"],
        ),
        service=ServiceConfig(
            listen=params["listen"],
            shutdown_timeout=params["shutdown_timeout"],
            stall_timeout=params["stall_timeout"],
            tls=_tls(params),
            otlp_traces_endpoint=params["otlp_traces_endpoint"],
        ),
        requests=RequestPolicy(max_logprobs=params["max_logprobs"], seed=params["seed"]),
        parallel=ParallelConfig(
            num_ranks=params["tensor_parallel_size"],
            num_nodes=params["nnodes"],
            node_rank=params["node_rank"],
            master_addr=params["master_addr"],
            master_port=params["master_port"],
            local_rank=params["local_rank"],
            worker_args=tuple(engine_args(params)),
        ),
        adapters=_adapters(params),
    )


def _adapters(params: Mapping[str, Any]) -> AdapterConfig:
    try:
        return parse_adapters(params)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _tls(params: Mapping[str, Any]) -> ServerTls | None:
    try:
        return ServerTls.of(params)
    except TlsError as error:
        raise ConfigError(str(error)) from error
