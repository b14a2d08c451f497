"""What start-up and `octavo plan` need to know of an encoder before they ask for its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_svc.config import ConfigError

if TYPE_CHECKING:
    from engine_svc.config import Settings
    from engine_svc.loader.encoder_directory import OpenedEncoder

_DEFAULT_STEP_TOKENS = 512


def check_flags(settings: Settings) -> None:
    """Refuses what has a meaning, but none that an encoder could have here. Raises ConfigError."""
    if settings.model.dtype not in ("auto", "float32"):
        raise ConfigError(f"--dtype {settings.model.dtype}: encoders compute in float32 only")
    if settings.model.quantization not in ("auto", "none"):
        raise ConfigError(
            f"--quantization {settings.model.quantization}: encoders keep their weights in float32"
        )
    if settings.cache.dtype != "auto":
        raise ConfigError(f"--kv-cache-dtype {settings.cache.dtype}: encoders have no KV cache")
    if settings.cache.memory_bytes is not None or settings.cache.num_blocks is not None:
        raise ConfigError(
            "--kv-cache-memory-bytes and --num-gpu-blocks-override: encoders have no KV cache"
        )
    if settings.parallel.num_ranks > 1:
        raise ConfigError(
            f"--tensor-parallel-size {settings.parallel.num_ranks}: an encoder computes on one "
            "rank; several of them behind a router share the work"
        )
    if settings.adapters.enabled:
        raise ConfigError("--enable-lora: encoders take no adapters")
    if settings.batch.speculative_config is not None:
        raise ConfigError("--speculative-config: an encoder generates nothing to guess at")


def max_input_tokens(settings: Settings, opened: OpenedEncoder) -> int:
    """Tokens of the longest input: as asked for, or as its author has it. Raises ConfigError."""
    asked, most = settings.model.max_model_len, opened.spec.max_position
    if asked is not None and asked > most:
        raise ConfigError(
            f"--max-model-len {asked} is above the {most} tokens that the model has positions for"
        )
    return asked or opened.max_len


def max_step_tokens_of(settings: Settings, max_len: int) -> int:
    """Most tokens of a step: an input is computed whole, so none may be longer.

    Raises ConfigError.
    """
    asked = settings.batch.max_num_batched_tokens
    if asked is not None and asked < max_len:
        raise ConfigError(
            f"an input is computed in one step: --max-num-batched-tokens {asked} is below the "
            f"{max_len} tokens of the longest; raise it, or lower --max-model-len"
        )
    return asked or max(_DEFAULT_STEP_TOKENS, max_len)
