"""What the families share: the parts of a spec that most configurations spell alike, and names.

Weight tables map a layer's canonical name (`DecoderSpec.weight_shapes`) to the name in a checkpoint
after the layer's prefix. Names that a given model does not have are never looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_svc.models.errors import ModelError
from engine_svc.models.rope import max_position, rope_parameters, rope_spec
from kernels.spec import Activation, DecoderSpec, LayerSpec, RopeSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine_svc.models.fields import Fields

MAX_LAYERS = 1_000

ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
}

HF_LAYER_NAMES = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "o_bias": "self_attn.o_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "gate_bias": "mlp.gate_proj.bias",
    "up_bias": "mlp.up_proj.bias",
    "down_bias": "mlp.down_proj.bias",
}

GGUF_LAYER_NAMES = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "o_bias": "attn_output.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "gate_bias": "ffn_gate.bias",
    "up_bias": "ffn_up.bias",
    "down_bias": "ffn_down.bias",
    "post_attn_norm": "post_attention_norm.weight",
    "post_mlp_norm": "post_ffw_norm.weight",
}


@dataclass(frozen=True, slots=True)
class Family:
    """One family: who it is, how its configuration reads, and what its weights are called."""

    name: str
    architectures: tuple[str, ...]
    model_types: tuple[str, ...]
    keys: frozenset[str]  # configuration keys that `spec_from_config` reads beyond the common ones
    spec_from_config: Callable[[Mapping[str, Any]], DecoderSpec]
    hf_layer_names: Mapping[str, str]


def decoder_spec(
    fields: Fields,
    layers: Sequence[LayerSpec],
    *,
    activation_key: str = "hidden_act",
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
) -> DecoderSpec:
    """The spec of a plain pre-norm decoder; a family changes what it does otherwise.

    Raises ModelError for sizes that do not fit together and for an unknown activation.
    """
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    kv_heads = fields.optional_size("num_key_value_heads") or heads
    head_dim = fields.optional_size("head_dim") or hidden // heads
    if heads % kv_heads:
        raise ModelError(
            f"configuration: num_attention_heads ({heads}) is not a multiple of "
            f"num_key_value_heads ({kv_heads})"
        )
    if head_dim % 2 or head_dim == 0:
        raise ModelError(f"configuration: head_dim must be even, got {head_dim}")
    activation = fields.get(activation_key) or "silu"
    if activation not in ACTIVATIONS:
        raise ModelError(
            f"configuration: {activation_key} {activation!r} is not supported "
            f"(known: {', '.join(ACTIVATIONS)})"
        )
    return DecoderSpec(
        vocab_size=fields.size("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.size("intermediate_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        layers=tuple(layers),
        norm_eps=fields.number("rms_norm_eps"),
        max_position=max_position(fields, layers[0].rope),
        attention_scale=head_dim**-0.5,
        activation=ACTIVATIONS[activation],
        tied_head=fields.flag("tie_word_embeddings"),
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
    )


def num_layers(fields: Fields) -> int:
    """How many layers there are. Raises ModelError beyond MAX_LAYERS."""
    count = fields.size("num_hidden_layers")
    if count > MAX_LAYERS:
        raise ModelError(f"configuration: num_hidden_layers is {count}, the limit is {MAX_LAYERS}")
    return count


def single_rope(fields: Fields) -> RopeSpec:
    """The rotary embedding of a model whose layers all rotate alike."""
    return rope_spec(fields, rope_parameters(fields))


def layers_by_type(
    fields: Fields, ropes: Mapping[str, RopeSpec], default_types: Sequence[str], window: int | None
) -> tuple[LayerSpec, ...]:
    """Layers by `layer_types`, or by `default_types` where the configuration has none.

    Only sliding layers have the window. Raises ModelError for an unknown type, a list whose length
    is not the number of layers, and a sliding layer without a window.
    """
    types = fields.get("layer_types")
    if types is None:
        types = default_types
    count = num_layers(fields)
    if not isinstance(types, (list, tuple)) or len(types) != count:
        raise ModelError(f"configuration: layer_types must list {count} layers")
    for kind in types:
        if kind not in ropes:
            raise ModelError(f"configuration: layer type {kind!r} is not supported")
    if window is None and "sliding_attention" in types:
        raise ModelError("configuration: layer_types has sliding layers, sliding_window is unset")
    return tuple(
        LayerSpec(ropes[kind], window if kind == "sliding_attention" else None) for kind in types
    )


def windowed_layers(
    fields: Fields, *, window: int | None, first_sliding: int = 0
) -> tuple[LayerSpec, ...]:
    """Layers that rotate alike; from `first_sliding` on they have the window, unless listed."""
    rope = single_rope(fields)
    sliding = len(range(first_sliding, num_layers(fields))) if window else 0
    full = num_layers(fields) - sliding
    types = ["full_attention"] * full + ["sliding_attention"] * sliding
    return layers_by_type(
        fields, {"full_attention": rope, "sliding_attention": rope}, types, window
    )


def layer_names(spec: DecoderSpec, prefix: str, table: Mapping[str, str]) -> dict[str, str]:
    """Every layer's weights by canonical name, with their names in a checkpoint.

    `prefix` stands before a layer's number, for example "model.layers.".
    """
    names = {}
    for name in spec.weight_shapes():
        if name.startswith("layers."):
            _, layer, part = name.split(".")
            names[name] = f"{prefix}{layer}.{table[part]}"
    return names
