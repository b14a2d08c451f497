"""GGUF metadata as the configuration that the families read.

Keys: ggml's docs/gguf.md; what llama.cpp takes from the code instead of the file is said here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_svc.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_svc.loader.gguf_header import GgufHeader

# Metadata below the architecture's prefix that is read here or bears on nothing.
_KNOWN = frozenset({
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_rms_epsilon", "attention.sliding_window",
    "attention.sliding_window_pattern", "attn_logit_softcapping", "final_logit_softcapping",
    "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.finetuned",
    "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "rope.scale_linear", "expert_count", "expert_used_count", "tensor_data_layout",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The keys of one architecture."""

    header: GgufHeader
    arch: str

    def get(self, key: str, default: Any = None) -> Any:
        value = self.header.metadata.get(f"{self.arch}.{key}", default)
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            return value[0]  # a value for each layer, all the same
        return value

    def need(self, key: str) -> Any:
        if (value := self.get(key)) is None:
            raise ModelError(f"GGUF metadata: {self.arch}.{key} is missing")
        return value

    def unknown(self) -> list[str]:
        prefix = f"{self.arch}."
        keys = (k for k in self.header.metadata if k.startswith(prefix))
        return [k for k in keys if k.removeprefix(prefix) not in _KNOWN]


def config_from_gguf(header: GgufHeader) -> tuple[dict[str, Any], list[str]]:
    """The configuration, and notices about what was ignored. Raises ModelError.

    It has no `rope_scaling` for Llama 3, whose GGUF keeps the factors in a tensor.
    """
    if (parts := header.metadata.get("split.count", 1)) > 1:
        raise ModelError(
            f"the file is one of {parts} parts; join them first (llama-gguf-split --merge)"
        )
    arch = header.metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise ModelError(f"GGUF architecture {arch!r} is not supported. Known: {known}")
    meta = _Metadata(header, arch)
    config = _common(meta) | _ARCHITECTURES[arch](meta)
    ignored = meta.unknown()
    return config, [f"GGUF metadata is ignored: {', '.join(ignored[:8])}"] if ignored else []


def _common(meta: _Metadata) -> dict[str, Any]:
    tensors = meta.header.tensors
    if "token_embd.weight" not in tensors:
        raise ModelError("the GGUF file has no tensor token_embd.weight")
    heads = meta.need("attention.head_count")
    head_dim = meta.get("attention.key_length") or meta.need("embedding_length") // heads
    for key in ("attention.value_length", "rope.dimension_count"):
        if meta.get(key, head_dim) != head_dim:
            raise ModelError(
                f"GGUF metadata: {meta.arch}.{key} is {meta.get(key)}; only the head's own "
                f"{head_dim} is supported"
            )
    return {
        "vocab_size": tensors["token_embd.weight"].shape[0],
        "hidden_size": meta.need("embedding_length"),
        "intermediate_size": meta.need("feed_forward_length"),
        "num_hidden_layers": meta.need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": meta.need("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": meta.need("context_length"),
        "rope_theta": meta.get("rope.freq_base", 10_000.0),
        "rope_scaling": _rope_scaling(meta),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "num_experts": meta.get("expert_count", 0),
    }


def _rope_scaling(meta: _Metadata) -> dict[str, Any] | None:
    kind = meta.get("rope.scaling.type", "none")
    factor = meta.get("rope.scaling.factor") or meta.get("rope.scale_linear")
    if kind == "none" and factor in (None, 0.0, 1.0):
        return None
    if kind in ("none", "linear"):
        return {"rope_type": "linear", "factor": factor}
    scaling = {
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": meta.get("rope.scaling.original_context_length"),
        "beta_fast": meta.get("rope.scaling.yarn_beta_fast"),
        "beta_slow": meta.get("rope.scaling.yarn_beta_slow"),
    }
    if meta.get("rope.scaling.attn_factor", 1.0) != 1.0:
        raise ModelError(f"GGUF metadata: {meta.arch}.rope.scaling.attn_factor is not supported")
    return scaling


def _llama(meta: _Metadata) -> dict[str, Any]:
    """Mistral's files are marked llama too; a window makes the difference."""
    if window := meta.get("attention.sliding_window"):
        return {"model_type": "mistral", "sliding_window": window}
    return {"model_type": "llama"}


def _qwen2(_: _Metadata) -> dict[str, Any]:
    return {"model_type": "qwen2", "attention_bias": None}  # Qwen2 always has it


def _qwen3(_: _Metadata) -> dict[str, Any]:
    return {"model_type": "qwen3"}


def _gemma3(meta: _Metadata) -> dict[str, Any]:
    """The file lacks query_pre_attn_scalar, which is the head's size in all but the 27B model."""
    large = meta.need("block_count") == 62
    scalar = meta.need("embedding_length") // meta.need("attention.head_count")
    pattern = meta.get("attention.sliding_window_pattern", 6)
    if isinstance(pattern, list):
        types = ["sliding_attention" if windowed else "full_attention" for windowed in pattern]
        layers = {"layer_types": types[: meta.need("block_count")]}
    else:
        layers = {"sliding_window_pattern": pattern}
    return {
        "model_type": "gemma3_text",
        "query_pre_attn_scalar": scalar if large else meta.need("attention.key_length"),
        "sliding_window": meta.need("attention.sliding_window"),
        "rope_theta": meta.get("rope.freq_base", 1_000_000.0),
        "rope_local_base_freq": meta.get("rope.freq_base_swa", 10_000.0),
        "attn_logit_softcapping": meta.get("attn_logit_softcapping"),
        "final_logit_softcapping": meta.get("final_logit_softcapping"),
        **layers,
    }


_ARCHITECTURES: Mapping[str, Callable[[_Metadata], dict[str, Any]]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
}
