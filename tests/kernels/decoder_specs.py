"""Small decoders with everything that a family may have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernels.spec import Activation, DecoderSpec, LayerSpec, RopeSpec

if TYPE_CHECKING:
    pass

# Three KV heads, 105 neurons and 321 tokens divide among neither 2 ranks nor, but for one, 3.
UNEVEN = DecoderSpec(
    vocab_size=321,
    hidden_size=96,
    intermediate_size=105,
    num_heads=6,
    num_kv_heads=3,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),) * 2,
    norm_eps=1e-5,
    max_position=1024,
    attention_scale=0.25,
)


def with_everything(spec: DecoderSpec, *layers: LayerSpec) -> DecoderSpec:
    """A decoder of a spec's sizes, with biases, all norms, soft-caps and a tied head."""
    return replace(
        spec,
        layers=layers,
        activation=Activation.GELU_TANH,
        tied_head=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        qk_norm=True,
        post_norms=True,
        norm_offset=1.0,
        embedding_scale=spec.hidden_size**0.5,
        attention_softcap=20.0,
        logit_softcap=15.0,
    )


UNEVEN_EVERYTHING = with_everything(UNEVEN, LayerSpec(RopeSpec(), window=24), LayerSpec(RopeSpec()))
