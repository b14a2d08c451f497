"""Plans a model in this process, as `octavo plan` does in one of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from octavo.flags import plan_options, process_options

from engine_svc.config import settings_from
from engine_svc.planning.at_hand import open_at_hand
from engine_svc.planning.report import Report, parse_lengths, report
from engine_svc.planning.target import choose_target

_FLAGS = plan_options(process_options(click.command()(lambda: None)))

# Qwen2.5-1.5B, as its authors publish it.
QWEN25_15B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "vocab_size": 151_936,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


def plan(model: Path, *args: str) -> Report:
    """What `octavo plan MODEL ARGS` would say."""
    params = _FLAGS.make_context("plan", list(args)).params
    num_ranks = params["tensor_parallel_size"]
    return report(
        settings_from(model, params),
        open_at_hand(model),
        choose_target(params["memory"], params["gpu"], params["gpu_memory_utilization"], num_ranks),
        num_ranks=num_ranks,
        lengths=parse_lengths(params["lengths"]),
    )
