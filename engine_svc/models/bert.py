"""BERT (arXiv:1810.04805), MiniLM and the many sentence encoders that began as one of them."""

from __future__ import annotations

from engine_svc.models.encoder_family import EncoderFamily, with_biases

DEFAULTS = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}

NAMES = {
    "embed": "embeddings.word_embeddings.weight",
    "position_embed": "embeddings.position_embeddings.weight",
    "type_embed": "embeddings.token_type_embeddings.weight",
    **with_biases({"embed_norm": "embeddings.LayerNorm"}),
}

LAYER_NAMES = with_biases({
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "attn_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
})  # fmt: skip

BERT = EncoderFamily(
    name="BERT",
    model_type="bert",
    encoders=("BertModel", "BertForMaskedLM", "BertForPreTraining"),
    classifier="BertForSequenceClassification",
    keys={},
    defaults=DEFAULTS,
    prefix="bert.",
    names=NAMES,
    layers="encoder.layer.",
    layer_names=LAYER_NAMES,
    classifier_names=with_biases({"head": "bert.pooler.dense", "out": "classifier"}),
)
