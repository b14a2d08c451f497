"""Which family a configuration belongs to, and what in it cannot be served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_svc.models.encoder_registry import ENCODER_FAMILIES
from engine_svc.models.errors import ModelError
from engine_svc.models.fields import Fields
from engine_svc.models.gemma3 import GEMMA3
from engine_svc.models.llama import LLAMA
from engine_svc.models.mistral import MISTRAL
from engine_svc.models.qwen2 import QWEN2
from engine_svc.models.qwen3 import QWEN3
from engine_svc.models.rope import is_dynamic

if TYPE_CHECKING:
    from engine_svc.models.family import Family
    from kernels.spec import DecoderSpec

FAMILIES = (LLAMA, QWEN2, QWEN3, MISTRAL, GEMMA3)

# Features of other models that would change the result, with the values that leave them off.
_REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "partial_rotary_factor": ("rotation of a part of each head", (1, 1.0)),
    "num_experts": ("mixture of experts", (0,)),
    "num_local_experts": ("mixture of experts", (0,)),
    "n_routed_experts": ("mixture of experts", (0,)),
    "is_encoder_decoder": ("an encoder", (False,)),
    "add_cross_attention": ("cross attention", (False,)),
    "use_bidirectional_attention": ("attention to later tokens", (False,)),
    "alibi": ("ALiBi", (False,)),
    "logit_scale": ("scaled logits", (1, 1.0)),
    "logits_scaling": ("scaled logits", (1, 1.0)),
    "embedding_multiplier": ("scaled embeddings", (1, 1.0)),
    "residual_multiplier": ("a scaled residual", (1, 1.0)),
    "attention_multiplier": ("a scaled attention", ()),
    "rope_interleaved": ("rotation of neighbouring elements", (False,)),
    "attention_chunk_size": ("chunked attention", ()),
}

_COMMON_KEYS = frozenset({
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings", "rms_norm_eps",
    "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "layer_types",
    "original_max_position_embeddings", "architectures", "model_type", "torch_dtype", "dtype",
    "bos_token_id", "eos_token_id", "auto_map",
    "quantization_config", "compression_config",  # read by the loader
})  # fmt: skip
# Bear on training, on generation defaults read elsewhere, or on nothing.
_HARMLESS_KEYS = frozenset({
    "_name_or_path", "_attn_implementation_autoset", "attention_dropout", "cache_implementation",
    "embedding_dropout", "hidden_dropout", "id2label", "initializer_range", "label2id",
    "output_attentions", "output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type",
    "resid_pdrop", "return_dict", "sep_token_id",
    "transformers_version", "transformers.js_config", "unsloth_fixed", "use_cache",
    "chunk_size_feed_forward", "_sliding_window_pattern",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Understood:
    """A configuration as its family reads it."""

    family: Family
    spec: DecoderSpec
    notices: tuple[str, ...]


def family_of(config: Mapping[str, Any]) -> Family:
    """The family by `model_type`, or by `architectures` where that is absent.

    Raises ModelError with the known families if there is none, or if the two contradict each other.
    """
    model_type = config.get("model_type")
    architectures = config.get("architectures") or []
    wanted = str(model_type or (architectures[0] if architectures else "none given"))
    for family in FAMILIES:
        if model_type in family.model_types:
            break
        if model_type is None and set(architectures) & set(family.architectures):
            break
    else:
        known = ", ".join(f"{f.name} ({', '.join(f.model_types)})" for f in FAMILIES)
        known += "".join(f", {f.name} ({f.model_type})" for f in ENCODER_FAMILIES)
        remote = " Code that comes with a model (auto_map) is never run." * ("auto_map" in config)
        raise ModelError(f"model type {wanted!r} is not supported. Known: {known}.{remote}")
    if architectures and not set(architectures) & set(family.architectures):
        raise ModelError(
            f"architecture {architectures[0]!r} is not supported for model type {wanted!r}: "
            f"{' or '.join(family.architectures)} is"
        )
    return family


def understand(config: Mapping[str, Any]) -> Understood:
    """Reads a configuration in transformers' shape. Raises ModelError naming what is refused."""
    family = family_of(config)
    notices = []
    if "auto_map" in config:
        notices.append("auto_map is ignored: code that comes with a model is never run")
    if isinstance(text := config.get("text_config"), Mapping):
        notices.append("the model also takes images; it is served for text only")
        outer = {k: config[k] for k in ("tie_word_embeddings",) if k in config}
        config = outer | dict(text)
    for key, (feature, neutral) in _REFUSED.items():
        value = config.get(key)
        if value is not None and value not in neutral:
            raise ModelError(f"configuration: {key} is set, but {feature} is not supported")
    spec = family.spec_from_config(config)
    if is_dynamic(Fields(config, {})):
        notices.append(
            f"dynamic rope scaling is served up to the trained length of {spec.max_position} "
            "tokens, where it changes nothing"
        )
    known = _COMMON_KEYS | _HARMLESS_KEYS | _REFUSED.keys() | family.keys
    unknown = [k for k, v in config.items() if k not in known and v not in (None, False, [], {})]
    if unknown:
        notices.append(f"config.json: unknown keys are ignored: {', '.join(sorted(unknown)[:8])}")
    return Understood(family, spec, tuple(notices))
