"""DistilBERT (arXiv:1910.01108): BERT without token types, under other names."""

from __future__ import annotations

from engine_svc.models.encoder_family import EncoderFamily, with_biases
from kernels.encoder import EncoderActivation

DISTILBERT = EncoderFamily(
    name="DistilBERT",
    model_type="distilbert",
    encoders=("DistilBertModel", "DistilBertForMaskedLM"),
    classifier="DistilBertForSequenceClassification",
    keys={
        "hidden_size": "dim",
        "intermediate_size": "hidden_dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "hidden_act": "activation",
    },
    # The norms' epsilon is fixed: the configuration has no key for it.
    defaults={"activation": "gelu", "max_position_embeddings": 512, "layer_norm_eps": 1e-12},
    prefix="distilbert.",
    names={
        "embed": "embeddings.word_embeddings.weight",
        "position_embed": "embeddings.position_embeddings.weight",
        **with_biases({"embed_norm": "embeddings.LayerNorm"}),
    },
    layers="transformer.layer.",
    layer_names=with_biases({
        "q": "attention.q_lin",
        "k": "attention.k_lin",
        "v": "attention.v_lin",
        "o": "attention.out_lin",
        "attn_norm": "sa_layer_norm",
        "up": "ffn.lin1",
        "down": "ffn.lin2",
        "mlp_norm": "output_layer_norm",
    }),
    classifier_names=with_biases({"head": "pre_classifier", "out": "classifier"}),
    classifier_activation=EncoderActivation.RELU,
)  # fmt: skip
