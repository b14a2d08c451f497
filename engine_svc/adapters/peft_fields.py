"""Fields of adapter_config.json: each is served, refused or without effect, or it is unknown.

Those that PEFT writes up to 0.21 (huggingface/peft, `LoraConfig`) are known. What a later version
adds may change what an adapter computes, so that a field which nobody has looked at is refused
unless it is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG = "adapter_config.json"

# What is read: `engine_svc.adapters.peft_config` says how.
_SERVED = frozenset({
    "peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern",
    "init_lora_weights", "target_modules", "base_model_name_or_path",
})  # fmt: skip
# What would change the result, with the values beside null that leave it off.
_REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "use_dora": ("weights that are also scaled by magnitudes (DoRA)", (False,)),
    "bias": ("biases that were trained along", ("none",)),
    "lora_bias": ("biases of its matrices", (False,)),
    "modules_to_save": ("modules that were trained whole", ([],)),
    "fan_in_fan_out": ("transposed weights", (False,)),
    "layer_replication": ("layers that are used twice", ([],)),
    "trainable_token_indices": ("embeddings that were trained along", ([], {})),
    "target_parameters": ("parameters outside linear modules", ([],)),
    "alora_invocation_tokens": ("an adapter that begins in the middle of a prompt (aLoRA)", ([],)),
    "use_qalora": ("pooled inputs (QA-LoRA)", (False,)),
    "use_bdlora": ("block-diagonal matrices (BD-LoRA)", (False, {})),
    "arrow_config": ("routing between adapters (Arrow)", ({},)),
    "kasa_config": ("weights without their smallest singular values (KaSA)", ({},)),
    "monteclora_config": ("weights that are drawn at random (MonteCLoRA)", ({},)),
    "velora_config": ("projections that are stored beside its matrices (VeLoRA)", ({},)),
}
# Ways to begin that leave the model's own weights as they are; the others take their matrices out
# of these, so that they fit the model only as it was changed.
_PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal", "mica")
# What bears on training, on which modules have tensors (the file has them or not), or on nothing.
_WITHOUT_EFFECT = frozenset({
    "exclude_modules", "layers_to_transform", "layers_pattern", "lora_dropout", "task_type",
    "inference_mode", "auto_mapping", "revision", "peft_version", "megatron_config",
    "megatron_core", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
    "runtime_config", "qalora_group_size", "ensure_weight_tying",
})  # fmt: skip


def check_fields(values: Mapping[str, Any]) -> None:
    """Raises ModelError naming a field that asks for more than W + scale·B·A, or is unknown."""
    if values.get("peft_type") != "LORA":
        raise wrong("peft_type", f"is {shown(values.get('peft_type'))}; only LORA is served")
    for key, value in values.items():
        if key in _REFUSED:
            feature, off = _REFUSED[key]
            if value is not None and value not in off:
                raise wrong(key, f"is {shown(value)}: {feature} cannot be served")
        elif key not in _SERVED and key not in _WITHOUT_EFFECT and not _is_empty(value):
            raise wrong(
                key[:80], f"is {shown(value)}: this version does not know what the field does"
            )
    start = values.get("init_lora_weights")
    if not any(start is plain or start == plain for plain in _PLAIN_STARTS):
        raise wrong(
            "init_lora_weights",
            f"is {shown(start)}: such an adapter fits the model only as its training began by "
            "changing it; save it with path_initial_model_for_weight_conversion",
        )


def _is_empty(value: Any) -> bool:
    """Whether a value turns nothing on, whatever it is for; a number may, 0 as well."""
    return value is None or value is False or value in ("", [], {})


def shown(value: Any) -> str:
    """A value from the file, cut to what a message can hold."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def wrong(key: str, message: str) -> ModelError:
    """The error about a field."""
    return ModelError(f"{CONFIG}: {key} {message}")
