"""Mistral and Ministral: Llama with a sliding window (arXiv 2310.06825).

`layer_types`, where present, says which layers have the window, in Mistral's configurations as in
Ministral's; transformers' Mistral class alone ignores it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_svc.models.family import HF_LAYER_NAMES, Family, decoder_spec, windowed_layers
from engine_svc.models.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernels.spec import DecoderSpec

DEFAULTS = {
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "sliding_window": 4096,
}


def spec_from_config(config: Mapping[str, Any]) -> DecoderSpec:
    """Raises ModelError naming the key that cannot be served."""
    fields = Fields(config, DEFAULTS)
    window = fields.optional_size("sliding_window")
    return decoder_spec(fields, windowed_layers(fields, window=window))


MISTRAL = Family(
    name="Mistral",
    architectures=("MistralForCausalLM", "MinistralForCausalLM"),
    model_types=("mistral", "ministral"),
    keys=frozenset({"sliding_window"}),
    spec_from_config=spec_from_config,
    hf_layer_names=HF_LAYER_NAMES,
)
