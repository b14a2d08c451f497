"""Makes the checkpoints that are measured: python -m tests.bench.cpu.checkpoints DIR.

SmolLM2-135M-Instruct has real weights, from the package that `octavo serve smollm2` uses. The other
has the shapes of Qwen2.5-0.5B, random weights and SmolLM2's tokeniser: for speed only.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import orjson
import torch
from octavo.cache_dir import default_cache_dir
from safetensors.torch import save_file

from router_svc.model_store import DEFAULT_MODEL, PACKAGED_MODELS, fetch_packaged
from tests.bench.cpu.rows import QWEN, SMOLLM2
from tests.support.make_checkpoint import make_checkpoint

QWEN_VOCAB = 151936
QWEN_SHAPE = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}


def make_smollm2(out: Path) -> None:
    """The real model, in bfloat16."""
    cache = default_cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    make_checkpoint(fetch_packaged(PACKAGED_MODELS[DEFAULT_MODEL], cache), out)


def make_qwen(out: Path, smollm2: Path) -> None:
    """Random weights, the same each time."""
    out.mkdir(parents=True, exist_ok=True)
    rng = torch.Generator().manual_seed(0)
    hidden, inter = QWEN_SHAPE["hidden_size"], QWEN_SHAPE["intermediate_size"]
    keys = hidden // QWEN_SHAPE["num_attention_heads"] * QWEN_SHAPE["num_key_value_heads"]

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=rng) * 0.02).to(torch.bfloat16)

    embedding = random(QWEN_VOCAB, hidden)
    # Ids that the borrowed tokeniser lacks never have the highest logit: they could not be shown.
    tokens = orjson.loads((smollm2 / "config.json").read_bytes())["vocab_size"]
    embedding[tokens:] = 0
    ones = torch.ones(hidden, dtype=torch.bfloat16)
    weights = {"model.embed_tokens.weight": embedding, "model.norm.weight": ones}
    for number in range(QWEN_SHAPE["num_hidden_layers"]):
        layer = f"model.layers.{number}."
        weights[f"{layer}input_layernorm.weight"] = ones.clone()
        weights[f"{layer}post_attention_layernorm.weight"] = ones.clone()
        for name, rows in (("q", hidden), ("k", keys), ("v", keys)):
            weights[f"{layer}self_attn.{name}_proj.weight"] = random(rows, hidden)
            weights[f"{layer}self_attn.{name}_proj.bias"] = random(rows)
        weights[f"{layer}self_attn.o_proj.weight"] = random(hidden, hidden)
        weights[f"{layer}mlp.gate_proj.weight"] = random(inter, hidden)
        weights[f"{layer}mlp.up_proj.weight"] = random(inter, hidden)
        weights[f"{layer}mlp.down_proj.weight"] = random(hidden, inter)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(smollm2 / name, out / name)
    special = orjson.loads((smollm2 / "generation_config.json").read_bytes())
    config: dict[str, Any] = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": QWEN_VOCAB,
    }
    (out / "config.json").write_bytes(orjson.dumps(config | QWEN_SHAPE | special))


def main(models: Path) -> None:
    """Makes what is not there yet; config.json, written last, says that a checkpoint is whole."""
    if not (models / SMOLLM2 / "config.json").exists():
        make_smollm2(models / SMOLLM2)
    if not (models / QWEN / "config.json").exists():
        make_qwen(models / QWEN, models / SMOLLM2)


main(Path(sys.argv[1]))
