"""Llama 1 to 3 and what follows it, SmolLM2 among them (arXiv 2302.13971, 2407.21783)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_svc.models.family import HF_LAYER_NAMES, Family, decoder_spec, windowed_layers
from engine_svc.models.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernels.spec import DecoderSpec

DEFAULTS = {
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}


def spec_from_config(config: Mapping[str, Any]) -> DecoderSpec:
    """All layers alike and full; biases where the configuration asks. Raises ModelError."""
    fields = Fields(config, DEFAULTS)
    bias = fields.flag("attention_bias")
    return decoder_spec(
        fields,
        windowed_layers(fields, window=None),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias"),
    )


LLAMA = Family(
    name="Llama",
    architectures=("LlamaForCausalLM",),
    model_types=("llama",),
    keys=frozenset({"attention_bias", "mlp_bias"}),
    spec_from_config=spec_from_config,
    hf_layer_names=HF_LAYER_NAMES,
)
