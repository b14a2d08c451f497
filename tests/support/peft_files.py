"""LoRA adapters with random weights, in the files that PEFT writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from safetensors.numpy import save_file

from engine_svc.models.family import HF_LAYER_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from kernels.spec import DecoderSpec

ALL_PARTS = ("q", "k", "v", "o", "gate", "up", "down")
PREFIX = "base_model.model.model.layers."


def peft_tensors(
    spec: DecoderSpec,
    *,
    rank: int = 4,
    parts: Sequence[str] = ALL_PARTS,
    seed: int = 0,
    std: float = 0.05,
) -> dict[str, npt.NDArray[np.float32]]:
    """A and B of every layer's parts, by PEFT's names."""
    draw = np.random.default_rng(seed)
    shapes, tensors = spec.weight_shapes(), {}
    for layer in range(spec.num_layers):
        for part in parts:
            out, cols = shapes[f"layers.{layer}.{part}"]
            module = PREFIX + f"{layer}.{HF_LAYER_NAMES[part].removesuffix('.weight')}"
            for side, shape in (("A", (rank, cols)), ("B", (out, rank))):
                values = draw.normal(scale=std, size=shape).astype(np.float32)
                tensors[f"{module}.lora_{side}.weight"] = values
    return tensors


def peft_config(*, rank: int = 4, **changes: Any) -> dict[str, Any]:
    """adapter_config.json as PEFT has it where nothing special was asked for."""
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": "tiny",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "use_dora": False,
        "use_rslora": False,
        "lora_dropout": 0.05,
        "task_type": "CAUSAL_LM",
        "inference_mode": True,
        "peft_version": "0.18.0",
    } | changes


def write_peft(
    directory: Path,
    tensors: Mapping[str, npt.NDArray[Any]],
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Writes an adapter; returns its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "adapter_config.json").write_bytes(orjson.dumps(config or peft_config()))
    save_file(dict(tensors), directory / "adapter_model.safetensors")
    return directory


def make_adapter(
    directory: Path, spec: DecoderSpec, *, rank: int = 4, seed: int = 0, std: float = 0.05
) -> Path:
    """An adapter of all parts of all layers; returns its directory."""
    tensors = peft_tensors(spec, rank=rank, seed=seed, std=std)
    return write_peft(directory, tensors, peft_config(rank=rank))
