"""Qwen3: Qwen2 with norms on each head's q and k in place of biases (arXiv 2505.09388)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_svc.models import qwen2
from engine_svc.models.family import HF_LAYER_NAMES, Family, decoder_spec
from engine_svc.models.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernels.spec import DecoderSpec

DEFAULTS = {**qwen2.DEFAULTS, "head_dim": 128}


def spec_from_config(config: Mapping[str, Any]) -> DecoderSpec:
    """Raises ModelError naming the key that cannot be served."""
    fields = Fields(config, DEFAULTS)
    bias = fields.flag("attention_bias")
    return decoder_spec(
        fields, qwen2.qwen_layers(fields), qkv_bias=bias, output_bias=bias, qk_norm=True
    )


QWEN3 = Family(
    name="Qwen3",
    architectures=("Qwen3ForCausalLM",),
    model_types=("qwen3",),
    keys=qwen2.WINDOW_KEYS | {"attention_bias"},
    spec_from_config=spec_from_config,
    hf_layer_names=HF_LAYER_NAMES,
)
