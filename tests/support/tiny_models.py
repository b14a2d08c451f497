"""Tiny checkpoints with random weights, one for each family, that can be served end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MinistralConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

if TYPE_CHECKING:
    from pathlib import Path

BOS, EOS, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A few merges, so that a token may be part of a word, a word, or part of a character.
_WORDS = ("the", " the", "er", " and", "ing", " hello", " world", "user", "assistant", "system")

_CONFIGS: dict[str, type[PreTrainedConfig]] = {
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "mistral": MistralConfig,
    "ministral": MinistralConfig,
    "gemma3": Gemma3TextConfig,
}
_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_OF_FAMILY: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 32},
    "mistral": {"sliding_window": 16, "head_dim": 32},
    "ministral": {"sliding_window": 16, "head_dim": 16},
    "gemma3": {
        "head_dim": 32,
        "query_pre_attn_scalar": 24,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 6,
    },
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokeniser: 256 bytes, a few merges, three control tokens and ChatML."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges: list[tuple[str, str]] = []
    for word in _WORDS:
        symbols = list(word.replace(" ", "Ġ"))
        while len(symbols) > 1:
            pair = (symbols[0], symbols[1])
            symbols[:2] = ["".join(pair)]
            if symbols[0] not in pieces:
                pieces.append(symbols[0])
                merges.append(pair)
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False, special=True) for text in (BOS, EOS, PAD)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(family: str, *, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """A model of `family` in float32; `overrides` are keys of its configuration.

    Norms and biases are random too: at their initial ones and zeros they would hide mistakes.
    """
    tokenizer = make_tokenizer()
    settings = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **_SIZES,
        **_OF_FAMILY.get(family, {}),
        **overrides,
    }
    model = AutoModelForCausalLM.from_config(
        _CONFIGS[family](**settings), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if name.endswith("norm.weight"):
                weight.add_(0.2 * noise)
            elif name.endswith("bias"):
                weight.copy_(0.2 * noise)
            else:
                weight.copy_(noise * weight.shape[-1] ** -0.5)
    return model


def make_tiny(family: str, out: Path, **overrides: Any) -> Path:
    """Writes a tiny checkpoint with tokeniser to the directory `out`, and returns it.

    Beside configuration keys, `overrides` may have `seed`, `dtype` (a torch type) and
    `max_shard_size` (as transformers takes it).
    """
    dtype = overrides.pop("dtype", torch.float32)
    shard_size = overrides.pop("max_shard_size", "1GB")
    model = tiny_model(family, **overrides).to(dtype)
    model.save_pretrained(out, max_shard_size=shard_size)
    make_tokenizer().save_pretrained(out)
    return out
