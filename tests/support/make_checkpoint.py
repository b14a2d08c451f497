"""Turns the packaged SmolLM2 GGUF into the bfloat16 checkpoint that tests compare it with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import torch
from octavo.gguf_metadata import read_gguf_head
from safetensors.torch import save_file

from engine_svc.loader.open_model import open_model
from engine_svc.models.family import layer_names
from engine_svc.models.llama import LLAMA
from router_svc.text.gguf_tokenizer import load_gguf_tokenizer
from tests.support.stored_tensors import values

if TYPE_CHECKING:
    from pathlib import Path

    from engine_svc.loader.opened import OpenedModel
    from engine_svc.models.family import Family


def make_checkpoint(gguf: Path, out: Path) -> None:
    """Writes config, generation config, dequantised weights and tokeniser to the directory `out`.

    config.json comes last, so that its presence means that the checkpoint is whole.
    """
    out.mkdir(parents=True, exist_ok=True)
    opened = open_model(gguf)
    weights = {name: w.to(torch.bfloat16) for name, w in hf_weights(opened, LLAMA).items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer = load_gguf_tokenizer(gguf)
    tokenizer.backend.save(str(out / "tokenizer.json"))
    metadata = read_gguf_head(gguf).metadata
    special = {
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": tokenizer.eos_id,
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }
    _write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **tokenizer.special_texts,
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": opened.max_position,
            "chat_template": metadata["tokenizer.chat_template"],
        },
    )
    _write_json(out / "generation_config.json", special)
    _write_json(out / "config.json", _config(opened) | special)


def hf_weights(opened: OpenedModel, family: Family) -> dict[str, torch.Tensor]:
    """All weights by the names that transformers has for them, dequantised."""
    names = {"embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight"}
    names |= layer_names(opened.spec, "model.layers.", family.hf_layer_names)
    return {stored: values(opened.source.load(name)) for name, stored in names.items()}


def _config(opened: OpenedModel) -> dict[str, Any]:
    spec = opened.spec
    return {
        "architectures": [LLAMA.architectures[0]],
        "model_type": LLAMA.model_types[0],
        "attention_bias": spec.qkv_bias,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "max_position_embeddings": spec.max_position,
        "mlp_bias": spec.mlp_bias,
        "num_attention_heads": spec.num_heads,
        "num_hidden_layers": spec.num_layers,
        "num_key_value_heads": spec.num_kv_heads,
        "rms_norm_eps": spec.norm_eps,
        "rope_scaling": None,
        "rope_theta": spec.layers[0].rope.theta,
        "tie_word_embeddings": spec.tied_head,
        "torch_dtype": "bfloat16",
        "vocab_size": spec.vocab_size,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))
