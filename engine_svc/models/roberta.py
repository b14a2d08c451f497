"""RoBERTa (arXiv:1907.11692) and XLM-RoBERTa: BERT whose positions count from the padding id on."""

from __future__ import annotations

from engine_svc.models.bert import DEFAULTS, LAYER_NAMES, NAMES
from engine_svc.models.encoder_family import EncoderFamily, with_biases


def _family(name: str, model_type: str, class_prefix: str) -> EncoderFamily:
    return EncoderFamily(
        name=name,
        model_type=model_type,
        encoders=(f"{class_prefix}Model", f"{class_prefix}ForMaskedLM"),
        classifier=f"{class_prefix}ForSequenceClassification",
        keys={},
        defaults=DEFAULTS | {"pad_token_id": 1},
        prefix="roberta.",
        names=NAMES,
        layers="encoder.layer.",
        layer_names=LAYER_NAMES,
        classifier_names=with_biases({"head": "classifier.dense", "out": "classifier.out_proj"}),
        starts_behind_padding=True,
    )


ROBERTA = _family("RoBERTa", "roberta", "Roberta")
XLM_ROBERTA = _family("XLM-RoBERTa", "xlm-roberta", "XLMRoberta")
