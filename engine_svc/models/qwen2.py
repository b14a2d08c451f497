"""Qwen2 and Qwen2.5: Llama with biases on q, k and v (arXiv 2407.10671)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_svc.models.family import HF_LAYER_NAMES, Family, decoder_spec, windowed_layers
from engine_svc.models.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernels.spec import DecoderSpec, LayerSpec

DEFAULTS = {
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
WINDOW_KEYS = frozenset({"use_sliding_window", "sliding_window", "max_window_layers"})


def qwen_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """The window is off unless `use_sliding_window`; then layers after the first few slide."""
    window = fields.optional_size("sliding_window") if fields.flag("use_sliding_window") else None
    first = 0 if fields.get("max_window_layers") == 0 else fields.size("max_window_layers")
    return windowed_layers(fields, window=window, first_sliding=first)


def spec_from_config(config: Mapping[str, Any]) -> DecoderSpec:
    """Raises ModelError naming the key that cannot be served."""
    fields = Fields(config, DEFAULTS)
    return decoder_spec(fields, qwen_layers(fields), qkv_bias=True)


QWEN2 = Family(
    name="Qwen2",
    architectures=("Qwen2ForCausalLM",),
    model_types=("qwen2",),
    keys=WINDOW_KEYS,
    spec_from_config=spec_from_config,
    hf_layer_names=HF_LAYER_NAMES,
)
