"""Gemma 3, its text part (arXiv 2503.19786).

Sandwich norms with weights stored as w - 1, q and k norms, and two kinds of layers: five of six see
a window and rotate with a small base, the others see everything and rotate with a large one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine_svc.models.family import (
    HF_LAYER_NAMES,
    Family,
    decoder_spec,
    layers_by_type,
    num_layers,
)
from engine_svc.models.fields import Fields
from engine_svc.models.rope import rope_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernels.spec import DecoderSpec, RopeSpec

DEFAULTS = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
}


def _ropes(fields: Fields) -> dict[str, RopeSpec]:
    """Only the full layers are scaled by an old-style `rope_scaling`."""
    parameters = fields.values.get("rope_parameters") or {}
    full = parameters.get("full_attention") or {}
    full = {"rope_theta": fields.get("rope_theta")} | full | (fields.get("rope_scaling") or {})
    local = parameters.get("sliding_attention") or {}
    local = {"rope_theta": fields.get("rope_local_base_freq")} | local
    return {
        "full_attention": rope_spec(fields, full),
        "sliding_attention": rope_spec(fields, local),
    }


def spec_from_config(config: Mapping[str, Any]) -> DecoderSpec:
    """Raises ModelError naming the key that cannot be served.

    `embedding_scale` is exact here; a back end rounds it to the activations' type before it
    multiplies, as the published model does.
    """
    fields = Fields(config, DEFAULTS)
    pattern = fields.size("sliding_window_pattern")
    types = [
        "sliding_attention" if (i + 1) % pattern else "full_attention"
        for i in range(num_layers(fields))
    ]
    window = fields.optional_size("sliding_window")
    layers = layers_by_type(fields, _ropes(fields), types, window)
    bias = fields.flag("attention_bias")
    spec = decoder_spec(
        fields,
        layers,
        activation_key="hidden_activation",
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
    )
    return replace(
        spec,
        # Published lengths already count the scaling of the full layers.
        max_position=fields.size("max_position_embeddings"),
        attention_scale=fields.number("query_pre_attn_scalar") ** -0.5,
        post_norms=True,
        norm_offset=1.0,
        embedding_scale=spec.hidden_size**0.5,
        attention_softcap=fields.optional_number("attn_logit_softcapping"),
        logit_softcap=fields.optional_number("final_logit_softcapping"),
    )


GEMMA3 = Family(
    name="Gemma 3",
    architectures=("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    model_types=("gemma3_text", "gemma3"),
    keys=frozenset(DEFAULTS)
    | {"attention_bias", "attn_logit_softcapping", "final_logit_softcapping"},
    spec_from_config=spec_from_config,
    hf_layer_names=HF_LAYER_NAMES
    | {
        "post_attn_norm": "post_attention_layernorm.weight",
        "mlp_norm": "pre_feedforward_layernorm.weight",
        "post_mlp_norm": "post_feedforward_layernorm.weight",
    },
)
