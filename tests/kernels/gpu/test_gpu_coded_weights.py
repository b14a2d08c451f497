"""Matrices of 4-bit codes on the GPU back end, interpreted: kept as codes, and what they mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.backend import Precision, StoredTensor
from kernels.coded import INT4, UINT4, CodedTensor
from kernels.gpu.backend import GpuBackend
from kernels.gpu.decoder import GpuDecoder
from kernels.gpu.linear import coded_linear
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec
from tests.kernels.decoder_steps import BLOCK_SIZE, Run, random_weights
from tests.support.coded_matrix import coded
from tests.support.stored_tensors import stored

EXACT = Precision("float32", weights="auto", kv_cache="auto")
CPU = torch.device("cpu")
PROMPT = [3, 50, 7, 7, 61, 12]
# The 96 columns of o and down are no whole units of 64: these two are decoded.
SPEC = DecoderSpec(
    vocab_size=80,
    hidden_size=64,
    intermediate_size=96,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),) * 2,
    norm_eps=1e-5,
    max_position=128,
    attention_scale=0.25,
    qkv_bias=True,
)


class Source:
    """Weights of a dictionary."""

    def __init__(self, weights: dict[str, StoredTensor | CodedTensor]) -> None:
        self.weights = weights

    @property
    def total_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.weights.values())

    def scheme(self, name: str) -> str:
        return self.weights[name].scheme

    def load(self, name: str) -> StoredTensor | CodedTensor:
        return self.weights[name]


def sources(scheme: str) -> tuple[Source, Source]:
    """A quantised model, and the same written out."""
    dense = {name: stored(weight) for name, weight in random_weights(SPEC).items()}
    matrices = {
        name: coded(shape, scheme, seed=i)
        for i, (name, shape) in enumerate(SPEC.weight_shapes().items())
        if name.startswith("layers.") and len(shape) == 2
    }
    written = {name: stored(torch.from_numpy(m.to_float32())) for name, m in matrices.items()}
    return Source(dense | matrices), Source(dense | written)


def backend() -> GpuBackend:
    return GpuBackend(CPU, max_num_batched_tokens=64, max_num_seqs=8)


def decoder(source: Source) -> GpuDecoder:
    return backend().load(SPEC, source, EXACT, lambda _done, _total: None)


@pytest.mark.parametrize("scheme", [INT4, UINT4])
def test_a_quantised_model_computes_what_its_codes_mean(scheme: str) -> None:
    kept, written = (decoder(source) for source in sources(scheme))

    logits = [Run(each).step(("a", PROMPT))["a"] for each in (kept, written)]

    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)
    assert kept.weight_bytes < 0.8 * written.weight_bytes


def test_the_plan_of_a_quantised_model_is_what_is_held_at_most() -> None:
    source, _ = sources(UINT4)

    needs = backend().plan(
        SPEC, source, EXACT, block_size=BLOCK_SIZE, max_num_batched_tokens=64, max_num_seqs=8
    )

    assert needs.weights == pytest.approx(decoder(source).weight_bytes, rel=0.02)


@pytest.mark.parametrize(("groups", "common"), [((32, 128), 32), ((64, 128), 64), ((256,), 128)])
def test_scales_of_wider_groups_are_repeated(groups: tuple[int, ...], common: int) -> None:
    parts = [coded((16, 256), UINT4, group, seed=group) for group in groups]
    bias = torch.randn(16 * len(parts))
    x = torch.randn(3, 256)

    linear = coded_linear(parts, bias, CPU, torch.float32)

    assert linear.weight.group == common
    meant = torch.cat([torch.from_numpy(part.to_float32()) for part in parts])
    torch.testing.assert_close(linear(x), x @ meant.T + bias, rtol=1e-4, atol=1e-4)


def test_scales_that_are_not_finite_are_refused() -> None:
    broken = coded((16, 64), INT4)
    broken.scales[3, 1] = np.inf

    with pytest.raises(ValueError, match="not finite"):
        coded_linear([broken], None, CPU, torch.float32)
