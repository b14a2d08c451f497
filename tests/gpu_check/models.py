"""Models to check and to measure with: small ones of each family, and large ones' shapes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from kernels.gpu.fp8_linear import Fp8Linear, multiplies_fp8
from kernels.gpu.linear import GpuLinear
from kernels.reference.weights import DecoderWeights, LayerWeights
from kernels.spec import Activation, DecoderSpec, LayerSpec, RopeKind, RopeSpec
from tests.gpu_check.outcome import Skip
from tests.support.coded_matrix import to_e4m3


def small_families(*, tiny: bool) -> dict[str, DecoderSpec]:
    """What each family has, in two layers; tiny ones are for the interpreter."""
    llama = DecoderSpec(
        vocab_size=80 if tiny else 1000,
        hidden_size=32 if tiny else 512,
        intermediate_size=48 if tiny else 1100,
        num_heads=2 if tiny else 8,
        num_kv_heads=1 if tiny else 2,
        head_dim=16 if tiny else 64,
        layers=(LayerSpec(RopeSpec(kind=RopeKind.LLAMA3, factor=8.0, original_max_position=64)),)
        * 2,
        norm_eps=1e-5,
        max_position=128 if tiny else 1024,
        attention_scale=0.25 if tiny else 0.125,
    )
    window = 9 if tiny else 100
    return {
        "llama": llama,
        "qwen2": dataclasses.replace(llama, qkv_bias=True, tied_head=True),
        "qwen3": dataclasses.replace(llama, qk_norm=True),
        "mistral": dataclasses.replace(llama, layers=(LayerSpec(RopeSpec(), window=window),) * 2),
        "gemma3": dataclasses.replace(
            llama,
            layers=(LayerSpec(RopeSpec(), window=window), LayerSpec(RopeSpec(theta=1e6))),
            activation=Activation.GELU_TANH,
            tied_head=True,
            qk_norm=True,
            post_norms=True,
            norm_offset=1.0,
            embedding_scale=8.0,
            attention_softcap=20.0,
            logit_softcap=15.0,
        ),
    }


SMOLLM2 = DecoderSpec(
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    layers=(LayerSpec(RopeSpec(theta=100_000.0)),) * 30,
    norm_eps=1e-5,
    max_position=2048,
    attention_scale=0.125,
    tied_head=True,
)
# A context of 2,048 is as much as is measured; the models themselves have more.
SHAPES = {
    "SmolLM2-135M": SMOLLM2,
    "Qwen2.5-1.5B": dataclasses.replace(
        SMOLLM2,
        vocab_size=151_936,
        hidden_size=1536,
        intermediate_size=8960,
        num_heads=12,
        num_kv_heads=2,
        head_dim=128,
        layers=(LayerSpec(RopeSpec(theta=1e6)),) * 28,
        attention_scale=128**-0.5,
        qkv_bias=True,
    ),
    "Llama-3.1-8B": dataclasses.replace(
        SMOLLM2,
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        layers=(LayerSpec(RopeSpec(theta=500_000.0)),) * 32,
        attention_scale=128**-0.5,
        tied_head=False,
    ),
}


SHAPES["Llama-3.1-8B in fp8"] = SHAPES["Llama-3.1-8B"]


def weights_type(name: str, dtype: torch.dtype) -> torch.dtype:
    """The type of a model's layers: dtype, or float8 of those that are named so."""
    return torch.float8_e4m3fn if name.endswith("in fp8") else dtype


def read_bytes(spec: DecoderSpec, dtype: torch.dtype, layers: torch.dtype) -> int:
    """Bytes of weights that a decode step reads: all, but only rows of an untied embedding.

    Layers may have a type of their own.
    """
    shapes = spec.weight_shapes()
    if not spec.tied_head:
        del shapes["embed"]
    return sum(
        torch.Size(shape).numel() * (layers if name.startswith("layers.") else dtype).itemsize
        for name, shape in shapes.items()
    )


def kv_bytes_per_token(spec: DecoderSpec, dtype: torch.dtype) -> int:
    """Bytes of keys and values of a token, over all layers."""
    return 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * dtype.itemsize


def random_on_device(
    spec: DecoderSpec, dtype: torch.dtype, device: torch.device, layers: torch.dtype
) -> DecoderWeights:
    """Random weights that never were on the host, of a spec without norms of heads or outputs.

    `layers` is the type of what the layers' matrices are kept in.
    """
    generator = torch.Generator(device).manual_seed(0)

    def matrix(num_out: int, num_in: int) -> torch.Tensor:
        weight = torch.empty(num_out, num_in, dtype=dtype, device=device)
        return weight.normal_(0.0, num_in**-0.5, generator=generator)

    def linear(num_out: int, num_in: int, *, bias: bool = False) -> GpuLinear | Fp8Linear:
        weight, bias_of = matrix(num_out, num_in), matrix(1, num_out)[0] if bias else None
        if layers is dtype:
            return GpuLinear(weight, bias_of)
        codes, scales = to_e4m3(weight.float(), num_in)
        return Fp8Linear(codes, scales, bias_of, rounds_rows=multiplies_fp8(device, dtype))

    def ones() -> torch.Tensor:
        return torch.ones(spec.hidden_size, dtype=dtype, device=device)

    hidden, inner = spec.hidden_size, spec.intermediate_size
    q = spec.num_heads * spec.head_dim
    qkv = q + 2 * spec.num_kv_heads * spec.head_dim
    embed = matrix(spec.vocab_size, hidden)
    layers = tuple(
        LayerWeights(
            attn_norm=ones(),
            qkv=linear(qkv, hidden, bias=spec.qkv_bias),
            qk_norm=None,
            o=linear(hidden, q),
            post_attn_norm=None,
            mlp_norm=ones(),
            gate_up=linear(2 * inner, hidden),
            down=linear(hidden, inner),
            post_mlp_norm=None,
        )
        for _ in spec.layers
    )
    head = GpuLinear(embed if spec.tied_head else matrix(spec.vocab_size, hidden))
    return DecoderWeights(embed, layers, ones(), head)


def smollm2_file(given: Path | None) -> Path:
    """SmolLM2 on this machine. Raises Skip that says how to get it."""
    if given is not None:
        return given
    # Here, since all else runs with torch, numpy and Triton alone.
    from octavo.cache_dir import default_cache_dir

    from router_svc.model_store import DEFAULT_MODEL, PACKAGED_MODELS

    path = default_cache_dir() / "models" / PACKAGED_MODELS[DEFAULT_MODEL].file_name
    if not path.is_file():
        raise Skip("SmolLM2 is not here: `make serve` fetches it, --model PATH says where it is")
    return path
