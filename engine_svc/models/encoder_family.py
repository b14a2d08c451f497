"""What encoder families share: reading a configuration, and names in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_svc.models.errors import ModelError
from engine_svc.models.family import MAX_LAYERS
from kernels.encoder import EncoderActivation, EncoderSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_svc.models.fields import Fields
    from kernels.encoder import ClassifierSpec, PoolingSpec

_ACTIVATIONS = {
    "gelu": EncoderActivation.GELU,
    "gelu_new": EncoderActivation.GELU_TANH,
    "gelu_pytorch_tanh": EncoderActivation.GELU_TANH,
    "relu": EncoderActivation.RELU,
}


@dataclass(frozen=True, slots=True)
class EncoderFamily:
    """One family: who it is, what its configuration calls things, and its weights' names.

    `keys` maps BERT's configuration keys to this family's; `names` and `layer_names` map canonical
    names (`EncoderSpec.weight_shapes`) to those in a checkpoint, after `prefix` and, in a layer,
    after `layers` and its number.
    """

    name: str
    model_type: str
    encoders: tuple[str, ...]  # architectures that give rows to pool
    classifier: str  # the architecture that gives scores
    keys: Mapping[str, str]
    defaults: Mapping[str, object]
    prefix: str
    names: Mapping[str, str]
    layers: str
    layer_names: Mapping[str, str]
    classifier_names: Mapping[str, str]  # whole: the prefix is not in front of them
    classifier_activation: EncoderActivation = EncoderActivation.TANH
    starts_behind_padding: bool = False  # the first position is that after the padding token's id

    def spec(self, fields: Fields, output: PoolingSpec | ClassifierSpec) -> EncoderSpec:
        """Reads a configuration. Raises ModelError naming the key that is wrong."""

        def size(key: str) -> int:
            return fields.size(self.keys.get(key, key))

        hidden, heads = size("hidden_size"), size("num_attention_heads")
        if hidden % heads:
            raise ModelError(
                f"configuration: {self.keys.get('hidden_size', 'hidden_size')} ({hidden}) is not a "
                f"multiple of the number of heads ({heads})"
            )
        num_layers = size("num_hidden_layers")
        if num_layers > MAX_LAYERS:
            raise ModelError(f"configuration: {num_layers} layers, the limit is {MAX_LAYERS}")
        key = self.keys.get("hidden_act", "hidden_act")
        activation = fields.get(key)
        if activation not in _ACTIVATIONS:
            raise ModelError(
                f"configuration: {key} {activation!r} is not supported "
                f"(known: {', '.join(_ACTIVATIONS)})"
            )
        num_positions = size("max_position_embeddings")
        first = _padding_id(fields) + 1 if self.starts_behind_padding else 0
        if first >= num_positions:
            raise ModelError(
                f"configuration: pad_token_id {first - 1} leaves none of the {num_positions} "
                "positions"
            )
        return EncoderSpec(
            vocab_size=size("vocab_size"),
            hidden_size=hidden,
            intermediate_size=size("intermediate_size"),
            num_layers=num_layers,
            num_heads=heads,
            num_positions=num_positions,
            first_position=first,
            num_token_types=size("type_vocab_size") if "type_embed" in self.names else 0,
            norm_eps=fields.number(self.keys.get("layer_norm_eps", "layer_norm_eps")),
            activation=_ACTIVATIONS[activation],
            output=output,
        )

    def weight_names(self, spec: EncoderSpec, prefix: str) -> dict[str, str]:
        """Canonical names of all weights with their names in a checkpoint that has this prefix."""
        found = {}
        for name in spec.weight_shapes():
            if name in self.classifier_names:
                found[name] = self.classifier_names[name]
            elif name.startswith("layers."):
                _, layer, part = name.split(".")
                found[name] = f"{prefix}{self.layers}{layer}.{self.layer_names[part]}"
            else:
                found[name] = prefix + self.names[name]
        return found


def _padding_id(fields: Fields) -> int:
    value = fields.get("pad_token_id")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 20:
        raise ModelError(f"configuration: pad_token_id must be a token id, got {value!r}")
    return value


def with_biases(weights: Mapping[str, str]) -> dict[str, str]:
    """Names of weights and of their biases from canonical name → module in a checkpoint."""
    both = {}
    for name, module in weights.items():
        both[name] = f"{module}.weight"
        both[f"{name}_bias"] = f"{module}.bias"
    return both
