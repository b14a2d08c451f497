"""A small model with every kind of weight, and how to look at what it was packed to."""

from __future__ import annotations

import dataclasses

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from kernels.backend import Precision, StoredTensor
from kernels.cpu import library
from kernels.cpu.matrix import PackedMatrix
from kernels.cpu.weights import CpuWeights, load_weights
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec
from tests.kernels import packed_matrices
from tests.kernels.decoder_steps import DictSource

SPEC = DecoderSpec(  # whose sizes are multiples of nothing that the kernels like
    vocab_size=70,
    hidden_size=96,
    intermediate_size=104,
    num_heads=3,
    num_kv_heads=1,
    head_dim=24,
    layers=(LayerSpec(RopeSpec()),) * 2,
    norm_eps=1e-5,
    max_position=64,
    attention_scale=0.2,
    qkv_bias=True,
    mlp_bias=True,
    qk_norm=True,
    post_norms=True,
    norm_offset=1.0,
)
WIDE = dataclasses.replace(SPEC, intermediate_size=128, head_dim=32)  # whole blocks of GGUF


def random_tensors(spec: DecoderSpec, seed: int = 1) -> dict[str, np.ndarray]:
    """Float32 weights of a usual size."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, 0.05, shape).astype(np.float32)
        for name, shape in spec.weight_shapes().items()
    }


def stored_as(scheme: str) -> dict[str, StoredTensor]:
    """Weights of WIDE, all matrices in one scheme of GGUF."""
    found = {}
    for name, tensor in random_tensors(WIDE).items():
        data = quantize(tensor, GGMLQuantizationType[scheme]) if tensor.ndim == 2 else tensor
        kind = scheme if tensor.ndim == 2 else "F32"
        found[name] = StoredTensor(kind, tensor.shape, data.reshape(-1).view(np.uint8))
    return found


def source_of(tensors: dict[str, np.ndarray]) -> DictSource:
    """The tensors as float32 of a file."""
    return DictSource(
        {
            name: StoredTensor("F32", tensor.shape, tensor.reshape(-1).view(np.uint8))
            for name, tensor in tensors.items()
        }
    )


def load(spec: DecoderSpec, source: DictSource, weights: str = "none", **options) -> CpuWeights:
    """Packed by the real library."""
    precision = Precision("bfloat16", weights, "auto")
    options = {"num_threads": 2, "on_progress": lambda _done, _total: None} | options
    return load_weights(library.require(), spec, source, precision, **options)


def values(weights: CpuWeights, matrix: str) -> np.ndarray:
    """What a matrix stands for, [num_blocks · 32, cols]."""
    slot = weights.layout.matrices[matrix]
    data = weights.buffer[slot.offset : slot.offset + slot.num_blocks * slot.block_bytes]
    packed = PackedMatrix(slot.format.name.lower(), slot.group, slot.cols, slot.num_blocks, data)
    return packed_matrices.weights(packed)
