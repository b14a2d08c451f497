"""Checkpoints in fp8 on the GPU back end, interpreted: what is multiplied, held and planned.

The definition is the dequantised matrix times rows that were rounded to e4m3 and back, in more
precision; torch._scaled_mm, which a CPU has as well, is another's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from engine_svc.loader.open_model import open_model
from kernels.backend import Precision
from kernels.coded import FP8, FP8_WEIGHTS
from kernels.collectives import Single
from kernels.gpu.backend import GpuBackend
from kernels.gpu.decoder import GpuDecoder
from kernels.gpu.fp8_linear import Fp8Linear, fp8_linear
from kernels.gpu.gemm import gemm, w8a16
from kernels.gpu.linear import GpuLinear
from kernels.gpu.matrix_plan import matrix_plan
from kernels.gpu.quantization import RowFormat, quantise_rows
from kernels.reference.backend import ReferenceBackend
from kernels.reference.decoder import ReferenceDecoder
from kernels.reference.linear import DenseLinear
from kernels.reference.weights import load_weights
from kernels.sharding import Shard
from kernels.spec import DecoderSpec, LayerSpec, RopeSpec
from tests.kernels.decoder_steps import BLOCK_SIZE, DictSource, Run, random_weights
from tests.support import quantized_checkpoints as written
from tests.support.coded_matrix import Coded, coded_fp8, to_e4m3
from tests.support.quantized_checkpoints import quantize_checkpoint
from tests.support.tiny_models import make_tiny

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kernels.backend import Decoder
    from kernels.coded import CodedTensor

CPU = torch.device("cpu")
PROMPT = [3, 50, 7, 7, 61, 12, 40]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Rows as codes and back: the definition of `kernels.gpu.quantization`."""
    largest = x.float().abs().amax(1, keepdim=True)
    inverse = torch.full_like(largest, 448) / largest  # "448 / largest" is two roundings
    codes = (x.float() * inverse).to(torch.float8_e4m3fn)
    return codes.float() * (largest / 448)


def linear(num_out: int, num_in: int, bias: torch.Tensor | None = None) -> Fp8Linear:
    codes, scales = to_e4m3(random(num_out, num_in, seed=1), num_in)
    return Fp8Linear(codes, scales, bias, rounds_rows=True)


def test_rows_are_rounded_and_multiplied_by_the_matrix_that_the_codes_mean() -> None:
    x, bias = random(40, 1100, dtype=torch.float16), random(40, seed=2)
    held = linear(40, 1100, bias)

    result = held.float32(x)

    meant = held.codes.double() * held.scales.double()
    torch.testing.assert_close(
        result.double(), rounded(x).double() @ meant.T + bias, rtol=1e-5, atol=1e-4
    )


def test_the_product_is_that_of_torchs_scaled_mm() -> None:
    x, held = random(5, 192), linear(32, 192)
    rows = quantise_rows(x, RowFormat.FP8)

    result = held(x)

    theirs = torch._scaled_mm(
        rows.codes,
        held.codes.T,
        scale_a=rows.scales[:, None],
        scale_b=held.scales.T.contiguous(),
        out_dtype=torch.float32,
    )
    torch.testing.assert_close(result, theirs, rtol=1e-5, atol=1e-4)


def test_a_row_has_the_same_bits_in_every_company() -> None:
    x, held = random(70, 1100, dtype=torch.float16), linear(20, 1100)
    assert matrix_plan(20, 1100, torch.float8_e4m3fn).num_segments == 2
    every = held(x)  # in a tile of 128

    for first, count in ((69, 1), (3, 16), (5, 40)):
        rows = slice(first, first + count)
        assert torch.equal(held(x[rows]), every[rows])


@pytest.mark.parametrize(
    ("num_rows", "num_in", "group", "dtype"),
    [
        (3, 1088, 64, torch.float16),
        (70, 1088, 64, torch.float16),
        (3, 1152, 128, torch.float32),
        (3, 1100, 1100, torch.float16),
    ],
)
def test_rows_that_are_not_rounded_have_the_bits_of_the_decoded_matrix(
    num_rows: int, num_in: int, group: int, dtype: torch.dtype
) -> None:
    x, bias = random(num_rows, num_in, dtype=dtype), random(40, dtype=dtype, seed=2)
    codes, scales = to_e4m3(random(40, num_in, seed=1), group)

    result = w8a16(x, codes, scales, bias)

    decoded = (codes.float().unflatten(1, (-1, group)) * scales[..., None]).flatten(1)
    assert torch.equal(result, gemm(x, decoded.to(dtype), bias))


def test_matrices_with_groups_of_their_own_are_stacked() -> None:
    groups = {384: FP8, 192: FP8_WEIGHTS, 128: FP8_WEIGHTS}
    parts = [coded_fp8(random(16, 384, seed=group), group, groups[group]) for group in groups]
    x = random(3, 384)

    held = fp8_linear(parts, None, CPU, rounds_rows=True)

    assert not held.rounds_rows  # as those of two of them are not meant to be
    alone = [fp8_linear([part], None, CPU, rounds_rows=False)(x) for part in parts]
    assert torch.equal(held(x), torch.cat(alone, 1))


@pytest.mark.parametrize("part", ["codes", "scales"])
def test_what_is_not_finite_is_refused(part: str) -> None:
    broken = coded_fp8(random(16, 64), 64)
    getattr(broken, part)[3, 0] = {"codes": 0xFF, "scales": np.inf}[part]

    with pytest.raises(ValueError, match=f"{part}.* not finite"):
        fp8_linear([broken], None, CPU, rounds_rows=True)


# The head's 80 outputs stay dense, as in most files; one matrix is for activations of 16 bits.
SPEC = DecoderSpec(
    vocab_size=80,
    hidden_size=64,
    intermediate_size=96,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    layers=(LayerSpec(RopeSpec()),),
    norm_eps=1e-5,
    max_position=128,
    attention_scale=0.25,
    qkv_bias=True,
)


def source() -> DictSource:
    """A model in fp8, a scale for each output."""
    weights: dict[str, torch.Tensor | Coded] = dict(random_weights(SPEC))
    for name, shape in SPEC.weight_shapes().items():
        if name.startswith("layers.") and len(shape) == 2:
            scheme = FP8_WEIGHTS if name == "layers.0.o" else FP8
            weights[name] = coded_fp8(weights[name], shape[1], scheme)
    return DictSource(weights)


def backend() -> GpuBackend:
    return GpuBackend(CPU, max_num_batched_tokens=64, max_num_seqs=8)


def unwatched(_done: int, _total: int) -> None:
    """Progress that nobody looks at."""


class RoundedLinear(DenseLinear):
    """The definition: rows are rounded, the matrix is what its codes mean."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(rounded(x))


def definition(*, rounds_rows: bool) -> Decoder:
    """A decoder of torch in float32."""

    def make_coded(tensors: Sequence[CodedTensor], bias: torch.Tensor | None) -> DenseLinear:
        meant = torch.from_numpy(np.concatenate([tensor.to_float32() for tensor in tensors]))
        is_rounded = rounds_rows and tensors[0].scheme == FP8
        return (RoundedLinear if is_rounded else DenseLinear)(meant, bias)

    weights = load_weights(
        SPEC, source(), torch.float32, unwatched, make_linear=DenseLinear, make_coded=make_coded
    )
    return ReferenceDecoder(Shard(SPEC, 0, 1), torch.float32, weights, Single())


def interpreted() -> Decoder:
    """The GPU's decoder in float32 but with rounded rows, for the sake of a close comparison."""

    def make_coded(tensors: Sequence[CodedTensor], bias: torch.Tensor | None) -> Fp8Linear:
        return fp8_linear(tensors, bias, CPU, rounds_rows=True)

    weights = load_weights(
        SPEC, source(), torch.float32, unwatched, make_linear=GpuLinear, make_coded=make_coded
    )
    return GpuDecoder(
        Shard(SPEC, 0, 1),
        torch.float32,
        weights,
        CPU,
        max_num_batched_tokens=64,
        max_num_seqs=8,
        kv_dtype=torch.float32,
        collectives=Single(),
    )


def logits(decoder: Decoder) -> torch.Tensor:
    run = Run(decoder)
    return torch.cat([run.step(("a", tokens))["a"] for tokens in (PROMPT, [5])])


def test_a_step_is_the_definitions() -> None:
    result = logits(interpreted())

    def distance(*, rounds_rows: bool) -> float:
        expected = logits(definition(rounds_rows=rounds_rows))
        return float((result - expected).norm() / expected.norm())

    assert distance(rounds_rows=True) < 1e-4
    assert distance(rounds_rows=False) > 0.02


def test_a_row_of_a_step_has_the_same_bits_in_every_company() -> None:
    decoder = interpreted()
    whole = Run(decoder).step(("a", PROMPT))["a"]

    together = Run(decoder)
    first = together.step(("b", [9, 8, 7]), ("a", PROMPT[:4]))["a"]
    second = together.step(("a", PROMPT[4:]), ("b", [3]))["a"]

    assert torch.equal(torch.cat((first, second)), whole)


@pytest.mark.parametrize(
    ("dtype", "weights", "rounds_rows"),
    [("float16", "auto", True), ("float32", "auto", False), ("float16", "none", None)],
)
def test_codes_are_planned_and_held_as_codes(
    dtype: str, weights: str, rounds_rows: bool | None
) -> None:
    precision = Precision(dtype, weights, kv_cache="auto")

    needs = backend().plan(
        SPEC, source(), precision, block_size=BLOCK_SIZE, max_num_batched_tokens=64, max_num_seqs=8
    )
    decoder = backend().load(SPEC, source(), precision, unwatched)

    assert needs.weights == pytest.approx(decoder.weight_bytes, rel=0.02)
    qkv = decoder._weights.layers[0].qkv
    assert (qkv.rounds_rows if isinstance(qkv, Fp8Linear) else None) is rounds_rows


def test_a_file_s_codes_reach_the_device_as_they_were_meant(tmp_path: Path) -> None:
    dense = make_tiny("qwen2", tmp_path / "dense", num_hidden_layers=1, intermediate_size=128)
    quantize_checkpoint(dense, tmp_path / "blocks", written.fp8((48, 64)))
    opened = open_model(tmp_path / "blocks")
    assert opened.source.scheme("layers.0.down") == FP8_WEIGHTS
    exact = Precision("float32", weights="auto", kv_cache="auto")

    loaded = backend().load(opened.spec, opened.source, exact, unwatched)

    reference = ReferenceBackend(threads=1).load(opened.spec, opened.source, exact, unwatched)
    result, expected = (Run(each).step(("a", PROMPT))["a"] for each in (loaded, reference))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert loaded.weight_bytes < 0.7 * reference.weight_bytes
