"""Tiny encoders with random weights, one for each family, that can be served end to end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
)

if TYPE_CHECKING:
    from pathlib import Path

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!"
_WORDS = ("the", "sea", "sky", "is", "blue", "what", "octavo", "sheet", "fold", "##ed", "##ing")

_CONFIGS: dict[str, type[PreTrainedConfig]] = {
    "bert": BertConfig,
    "roberta": RobertaConfig,
    "xlm-roberta": XLMRobertaConfig,
    "distilbert": DistilBertConfig,
}
FAMILIES = tuple(_CONFIGS)
_SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
    "layer_norm_eps": 1e-6,
    "type_vocab_size": 2,
}
_OF_FAMILY: dict[str, dict[str, Any]] = {
    "roberta": {"type_vocab_size": 1, "pad_token_id": 1},
    "xlm-roberta": {"type_vocab_size": 1, "pad_token_id": 1},
    "distilbert": {},
}
_DISTILBERT_SIZES = {
    "dim": 48,
    "hidden_dim": 80,
    "n_layers": 3,
    "n_heads": 4,
    "max_position_embeddings": 66,
}


def make_word_pieces() -> PreTrainedTokenizerFast:
    """A WordPiece tokeniser with BERT's special tokens: letters, a few words, pairs by segment."""
    pieces = [*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *_WORDS]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def tiny_encoder(
    family: str, *, num_labels: int | None = None, seed: int = 0, **overrides: Any
) -> PreTrainedModel:
    """A model of `family` in float32, with a classifier if it has labels.

    `overrides` are keys of its configuration. Norms and biases are random too: at their initial
    ones and zeros they would hide mistakes.
    """
    sizes = _DISTILBERT_SIZES if family == "distilbert" else _SIZES
    labels = {} if num_labels is None else {"num_labels": num_labels}
    settings = {
        "vocab_size": len(make_word_pieces()) + 3,
        **sizes,
        **_OF_FAMILY.get(family, {}),
        **labels,
        **overrides,
    }
    make = AutoModel if num_labels is None else AutoModelForSequenceClassification
    config = _CONFIGS[family](**settings)
    model = make.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "layer_norm" in name.lower() or "layernorm" in name.lower():
                weight.add_(0.2 * noise)
            elif name.endswith("bias"):
                weight.copy_(0.2 * noise)
            else:
                weight.copy_(noise * weight.shape[-1] ** -0.5)
    return model


def make_tiny_encoder(
    family: str,
    out: Path,
    *,
    num_labels: int | None = None,
    pooling: dict[str, Any] | None = None,
    normalize: bool = True,
    max_length: int | None = None,
    **overrides: Any,
) -> Path:
    """Writes a tiny checkpoint with tokeniser to the directory `out`, and returns it.

    With `pooling`, the content of 1_Pooling/config.json, it has sentence-transformers' files.
    """
    tiny_encoder(family, num_labels=num_labels, **overrides).save_pretrained(out)
    make_word_pieces().save_pretrained(out)
    if pooling is not None:
        kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
        kinds += [("2_Normalize", "Normalize")] if normalize else []
        modules = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(kinds)
        ]
        (out / "modules.json").write_text(json.dumps(modules))
        (out / "1_Pooling").mkdir(exist_ok=True)
        (out / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if max_length is not None:
        settings = {"max_seq_length": max_length, "do_lower_case": False}
        (out / "sentence_bert_config.json").write_text(json.dumps(settings))
    return out
