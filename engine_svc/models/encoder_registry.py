"""Which encoder family a configuration belongs to, and what in it cannot be served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_svc.models.bert import BERT
from engine_svc.models.distilbert import DISTILBERT
from engine_svc.models.errors import ModelError
from engine_svc.models.fields import Fields
from engine_svc.models.roberta import ROBERTA, XLM_ROBERTA
from kernels.encoder import ClassifierSpec, ScoreActivation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_svc.models.encoder_family import EncoderFamily
    from kernels.encoder import EncoderSpec, PoolingSpec

ENCODER_FAMILIES = (BERT, ROBERTA, XLM_ROBERTA, DISTILBERT)

_MAX_LABELS = 1 << 16
# Features that would change the result, with the values that leave them off.
_REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "position_embedding_type": ("other than a table of positions", ("absolute",)),
    "is_decoder": ("a BERT that generates", (False,)),
    "add_cross_attention": ("cross attention", (False,)),
    "quantization_config": ("quantised safetensors", ()),
    "sinusoidal_pos_embds": ("computed positions", (False,)),
}
# Where sentence-transformers has what scores go through, by version.
_SCORE_KEYS = (
    ("sentence_transformers", "activation_fn"),
    ("sbert_ce_default_activation_function",),
)
_SCORE_ACTIVATIONS = {"Identity": ScoreActivation.NONE, "Sigmoid": ScoreActivation.SIGMOID}


def encoder_family(config: Mapping[str, Any]) -> EncoderFamily | None:
    """The family by `model_type`, or by `architectures` where that is absent; None if no encoder.

    Raises ModelError for an architecture that the family does not have here.
    """
    model_type, architectures = config.get("model_type"), config.get("architectures") or []
    for family in ENCODER_FAMILIES:
        served = {*family.encoders, family.classifier}
        if model_type == family.model_type or (model_type is None and served & set(architectures)):
            if architectures and not served & set(architectures):
                raise ModelError(
                    f"architecture {architectures[0]!r} is not supported for model type "
                    f"{family.model_type!r}: {' or '.join(sorted(served))} is"
                )
            return family
    return None


def is_classifier(family: EncoderFamily, config: Mapping[str, Any]) -> bool:
    """Whether the model gives scores rather than rows to pool."""
    return family.classifier in (config.get("architectures") or [])


def understand_encoder(
    family: EncoderFamily, config: Mapping[str, Any], pooling: PoolingSpec
) -> EncoderSpec:
    """Reads a configuration; `pooling` is of no effect on a classifier.

    Raises ModelError naming what is refused.
    """
    for key, (feature, neutral) in _REFUSED.items():
        value = config.get(key)
        if value is not None and value not in neutral:
            raise ModelError(f"configuration: {key} is set, but {feature} is not supported")
    output: PoolingSpec | ClassifierSpec = pooling
    if is_classifier(family, config):
        num_labels = _num_labels(config)
        output = ClassifierSpec(
            num_labels, family.classifier_activation, _score_activation(config, num_labels)
        )
    return family.spec(Fields(config, family.defaults), output)


def _num_labels(config: Mapping[str, Any]) -> int:
    """As transformers has it: the names of the labels, their number, or two."""
    names = config.get("id2label")
    count = len(names) if isinstance(names, dict) else config.get("num_labels", 2)
    if type(count) is not int or not 1 <= count <= _MAX_LABELS:
        raise ModelError(
            f"configuration: num_labels must be from 1 to {_MAX_LABELS}, got {count!r}"
        )
    return count


def _score_activation(config: Mapping[str, Any], num_labels: int) -> ScoreActivation:
    """What sentence-transformers' cross-encoders do: a sigmoid over a single label.

    The configuration may name another one, as a class of torch.
    """
    for path in _SCORE_KEYS:
        value: Any = config
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            continue
        name = str(value).rpartition(".")[2]
        if name not in _SCORE_ACTIVATIONS:
            raise ModelError(
                f"configuration: {'.'.join(path)} {value!r} is not supported "
                f"(known: {', '.join(_SCORE_ACTIVATIONS)})"
            )
        return _SCORE_ACTIVATIONS[name]
    return ScoreActivation.SIGMOID if num_labels == 1 else ScoreActivation.NONE
