"""Products with 4-bit weights: checkpoints' layouts, and the same weights written out."""

from __future__ import annotations

import pytest
import torch

from kernels.gpu.gemm import gemm
from kernels.gpu.w4_layout import dequantise_w4, from_awq, from_gptq, pack_w4
from kernels.gpu.w4a16 import W4Weight, w4a16


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def numbers(num_out: int, num_in: int, group: int) -> tuple[torch.Tensor, ...]:
    """Codes [num_out, num_in], and scales and zeros [groups, num_out]."""
    groups = num_in // group
    codes = torch.randint(0, 16, (num_out, num_in), generator=generator())
    zeros = torch.randint(1, 16, (groups, num_out), generator=generator())
    scales = 0.1 * torch.rand(groups, num_out, generator=generator()) + 0.01
    return codes, scales.half(), zeros


def written_out(codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    """(code - zero) · scale, [num_out, num_in] float32."""
    group = codes.shape[1] // scales.shape[0]
    zero = zeros.T.repeat_interleave(group, 1)
    return (codes - zero).float() * scales.float().T.repeat_interleave(group, 1)


def packed(nibbles: torch.Tensor, order: list[int]) -> torch.Tensor:
    """int32 of eight numbers along the last axis: number order[i] at bits 4·i."""
    eights = nibbles.long().unflatten(-1, (-1, 8))[..., order]
    words = (eights << torch.arange(0, 32, 4)).sum(-1)
    return words.to(torch.uint32).view(torch.int32)


AWQ = [0, 2, 4, 6, 1, 3, 5, 7]
IN_ORDER = list(range(8))


@pytest.mark.parametrize("group", [32, 64, 128])
def test_an_awq_matrix_keeps_its_numbers(group):
    codes, scales, zeros = numbers(72, 256, group)

    weight = from_awq(packed(codes.T, AWQ), packed(zeros, AWQ), scales)

    assert weight.group == group
    assert torch.equal(dequantise_w4(weight, torch.float32), written_out(codes, scales, zeros))


@pytest.mark.parametrize("zero_offset", [0, 1])
def test_a_gptq_matrix_keeps_its_numbers(zero_offset):
    codes, scales, zeros = numbers(72, 256, 64)
    qweight = packed(codes, IN_ORDER).T
    qzeros = packed(zeros - zero_offset, IN_ORDER)

    weight = from_gptq(qweight, qzeros, scales, zero_offset=zero_offset)

    assert weight.order is None
    assert torch.equal(dequantise_w4(weight, torch.float32), written_out(codes, scales, zeros))


def test_act_order_is_kept():
    codes, scales, zeros = numbers(72, 256, 64)
    g_idx = (torch.arange(256) // 64)[torch.randperm(256, generator=generator())].int()
    qweight, qzeros = packed(codes, IN_ORDER).T, packed(zeros - 1, IN_ORDER)
    of_column = g_idx.long()
    expected = (codes - zeros.T[:, of_column]).float() * scales.float().T[:, of_column]

    weight = from_gptq(qweight, qzeros, scales, g_idx)

    assert weight.order is not None
    assert torch.equal(dequantise_w4(weight, torch.float32), expected)


def some_weight(num_out: int, num_in: int, group: int, *, plain: bool) -> W4Weight:
    codes, scales, zeros = numbers(num_out, num_in, group)
    if plain:
        return pack_w4(codes, scales)
    return pack_w4(codes, scales, zeros, torch.randperm(num_in, generator=generator()))


@pytest.mark.parametrize("plain", [True, False], ids=["symmetric", "zeros and order"])
@pytest.mark.parametrize("num_rows", [1, 17, 70, 130])
@pytest.mark.parametrize(
    ("num_out", "num_in", "group"), [(70, 128, 32), (96, 576, 64), (40, 1536, 128)]
)
def test_products_are_those_of_the_weights_written_out(num_out, num_in, group, num_rows, plain):
    weight = some_weight(num_out, num_in, group, plain=plain)
    x = torch.randn(num_rows, num_in, generator=generator()).half()
    bias = torch.randn(num_out, generator=generator()).half()

    result = w4a16(x, weight, bias)

    expected = x.double() @ dequantise_w4(weight, torch.float16).double().T + bias
    assert (result - expected).abs().max() <= 1e-3 * expected.abs().max()


def test_sums_run_as_in_a_dense_product():
    weight = some_weight(70, 576, 64, plain=True)
    x = torch.randn(20, 576, generator=generator())

    assert torch.equal(w4a16(x, weight), gemm(x, dequantise_w4(weight, torch.float32)))


def test_a_rows_bits_depend_on_neither_its_place_nor_its_company():
    weight = some_weight(70, 1152, 128, plain=False)
    x = torch.randn(130, 1152, generator=generator()).half()
    every = w4a16(x, weight)

    for first, count in ((0, 1), (129, 1), (5, 40)):
        rows = slice(first, first + count)
        assert torch.equal(w4a16(x[rows], weight), every[rows])


@pytest.mark.parametrize(("num_in", "groups"), [(96, 3), (256, 1), (200, 3)])
def test_sizes_that_the_kernel_cannot_take_are_refused(num_in, groups):
    with pytest.raises(ValueError, match="not of 32, 64 or 128"):
        pack_w4(torch.zeros(8, num_in), torch.ones(groups, 8).half())
