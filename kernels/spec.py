"""What a decoder-only language model computes, as data.

A family file in `engine_svc/models` turns a configuration into a `DecoderSpec`; a back end executes
it. With x a row of the residual stream, one layer is

    h = norm(x) · attn_norm
    q, k, v = h·Wq (+b), h·Wk (+b), h·Wv (+b)          heads of head_dim
    q, k = norm(q)·q_norm, norm(k)·k_norm              if qk_norm
    q, k = rope(q), rope(k)
    a = softmax(cap(scale · q·kᵀ) + mask) · v          mask: causal, and window if set
    x = x + post(a·Wo (+b))                            post: norm · post_attn_norm if post_norms
    h = norm(x) · mlp_norm
    x = x + post(act(h·Wgate) ∘ (h·Wup) · Wdown)       post: norm · post_mlp_norm if post_norms

with norm(x) = x / sqrt(mean(x²) + eps), weights applied as (w + norm_offset), and
cap(s) = c · tanh(s / c) where a soft-cap c is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RopeKind(StrEnum):
    """How rotary frequencies are scaled. Definitions: transformers' modeling_rope_utils."""

    DEFAULT = "default"
    LINEAR = "linear"
    LLAMA3 = "llama3"
    YARN = "yarn"


class Activation(StrEnum):
    """Non-linearity of the gated MLP."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding over the whole head, halves rotated against each other (NeoX)."""

    theta: float = 10_000.0
    kind: RopeKind = RopeKind.DEFAULT
    factor: float = 1.0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    original_max_position: int = 0  # llama3, yarn
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 1.0  # yarn: multiplies cos and sin
    truncate: bool = True  # yarn: whether the correction range is rounded to whole dimensions


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What differs between layers: a query at position p sees positions (p - window, p]."""

    rope: RopeSpec
    window: int | None = None


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A whole decoder. Sizes count elements; see the module's formulae."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layers: tuple[LayerSpec, ...]
    norm_eps: float
    max_position: int  # tokens the model was made for
    attention_scale: float  # usually head_dim ** -0.5
    activation: Activation = Activation.SILU
    tied_head: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    embedding_scale: float = 1.0
    attention_softcap: float | None = None
    logit_softcap: float | None = None

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Canonical names of all weights with their shapes; matrices are [out, in].

        This is the contract between loaders and back ends: a loader yields these names.
        """
        hidden, inner = self.hidden_size, self.intermediate_size
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab_size, hidden)}
        for i in range(self.num_layers):
            layer: dict[str, tuple[int, ...]] = {
                "attn_norm": (hidden,),
                "q": (q, hidden),
                "k": (kv, hidden),
                "v": (kv, hidden),
                "o": (hidden, q),
                "mlp_norm": (hidden,),
                "gate": (inner, hidden),
                "up": (inner, hidden),
                "down": (hidden, inner),
            }
            if self.qkv_bias:
                layer |= {"q_bias": (q,), "k_bias": (kv,), "v_bias": (kv,)}
            if self.output_bias:
                layer |= {"o_bias": (hidden,)}
            if self.mlp_bias:
                layer |= {"gate_bias": (inner,), "up_bias": (inner,), "down_bias": (hidden,)}
            if self.qk_norm:
                layer |= {"q_norm": (self.head_dim,), "k_norm": (self.head_dim,)}
            if self.post_norms:
                layer |= {"post_attn_norm": (hidden,), "post_mlp_norm": (hidden,)}
            shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
        shapes["final_norm"] = (hidden,)
        if not self.tied_head:
            shapes["lm_head"] = (self.vocab_size, hidden)
        return shapes
