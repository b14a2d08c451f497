"""Tiny GGUF files from tiny transformers models, laid out as llama.cpp's converter does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import GGUFWriter, TokenType, get_tensor_name_map
from gguf.constants import MODEL_ARCH, GGMLQuantizationType
from gguf.quants import quantize

from tests.support.tiny_models import CHAT_TEMPLATE, make_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

    Array = np.ndarray[Any, np.dtype[Any]]

_ARCHITECTURES = {
    "llama": MODEL_ARCH.LLAMA,
    "qwen2": MODEL_ARCH.QWEN2,
    "qwen3": MODEL_ARCH.QWEN3,
    "mistral": MODEL_ARCH.LLAMA,
    "gemma3_text": MODEL_ARCH.GEMMA3,
}


def write_tiny_gguf(
    model: PreTrainedModel,
    path: Path,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    *,
    with_tokenizer: bool = True,
    **metadata: int,
) -> Path:
    """Writes `model` with its matrices in `kind`; `metadata` adds integers under their full key.

    Keys in `metadata` have "__" for ".". Returns `path`.
    """
    arch = _ARCHITECTURES[model.config.model_type]
    writer = GGUFWriter(path, "gemma3" if arch == MODEL_ARCH.GEMMA3 else _name(arch))
    _add_sizes(writer, model)
    if with_tokenizer:
        _add_tokenizer(writer)
    for key, value in metadata.items():
        writer.add_uint32(key.replace("__", "."), value)
    names = get_tensor_name_map(arch, model.config.num_hidden_layers)
    tied = model.config.tie_word_embeddings
    for name, weight in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        value = _converted(model, name, weight.float().numpy())
        if value.ndim == 1:
            writer.add_tensor(target, value)
        else:
            writer.add_tensor(target, quantize(value, kind), raw_dtype=kind)
    if (divisors := _llama3_divisors(model)) is not None:
        writer.add_tensor("rope_freqs.weight", divisors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _name(arch: MODEL_ARCH) -> str:
    return arch.name.lower()


def _add_sizes(writer: GGUFWriter, model: PreTrainedModel) -> None:
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None)
    if head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    ropes = config.rope_parameters
    rope = ropes.get("full_attention", ropes)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_factor(rope["factor"])
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)


def _add_tokenizer(writer: GGUFWriter) -> None:
    tokenizer = make_tokenizer()
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([text for text, _ in vocab])
    writer.add_token_types(
        [TokenType.CONTROL if text in special else TokenType.NORMAL for text, _ in vocab]
    )
    merges = tokenizer.backend_tokenizer.to_str()
    writer.add_token_merges(_merges(merges))
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _merges(serialised: str) -> list[str]:
    import orjson

    return [" ".join(pair) for pair in orjson.loads(serialised)["model"]["merges"]]


def _converted(model: PreTrainedModel, name: str, value: Array) -> Array:
    """What llama.cpp's converter does to a weight of this family."""
    config = model.config
    if config.model_type == "gemma3_text" and name.endswith("norm.weight"):
        return value + 1
    if config.model_type in ("llama", "mistral"):
        if ".q_proj." in name:
            return _interleaved(value, config.num_attention_heads)
        if ".k_proj." in name:
            return _interleaved(value, config.num_key_value_heads)
    return value


def _interleaved(value: Array, heads: int) -> Array:
    """Puts a head's rows i and i + half next to each other."""
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return halves.swapaxes(1, 2).reshape(value.shape)


def _llama3_divisors(model: PreTrainedModel) -> Array | None:
    rope = model.config.rope_parameters
    if rope.get("rope_type") != "llama3":
        return None
    head_dim = model.config.head_dim
    plain = rope["rope_theta"] ** -(np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)
    return (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
