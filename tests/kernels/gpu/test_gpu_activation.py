"""Gated activations on a GPU: interpreted against the reference, and compiled."""

from __future__ import annotations

import pytest
import torch
from compile_checks import TARGETS, Target, assert_fits, compile_for

from kernels.gpu import activation as module
from kernels.gpu.activation import gated_activation_quantised, gelu_tanh_mul, silu_mul
from kernels.gpu.quantization import RowFormat, quantise_rows
from kernels.reference.activation import gated_activation as reference_activation
from kernels.spec import Activation

LAUNCHERS = {Activation.SILU: silu_mul, Activation.GELU_TANH: gelu_tanh_mul}
TOLERANCES = {torch.float32: 2e-6, torch.float16: 2e-3}


def gate_up(inner: int, dtype: torch.dtype) -> torch.Tensor:
    """Five rows of a gate and an up of inner columns each."""
    generator = torch.Generator().manual_seed(inner)
    return (3 * torch.randn(5, 2 * inner, generator=generator)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", list(Activation))
@pytest.mark.parametrize("inner", [100, 576, 1536])
def test_it_is_the_references(inner, kind, dtype):
    x = gate_up(inner, dtype)

    result = LAUNCHERS[kind](x)

    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(
        result, reference_activation(kind, x.clone()), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("format_", list(RowFormat))
@pytest.mark.parametrize("kind", list(Activation))
def test_codes_are_those_of_the_rounded_result(kind, format_):
    x = gate_up(2100, torch.float16)  # more than a block of a program that has the whole row
    expected = quantise_rows(LAUNCHERS[kind](x), format_)

    result = gated_activation_quantised(kind, x[:, :2100], x[:, 2100:], format_)

    assert torch.equal(result.stored, expected.stored)
    assert torch.equal(result.scales, expected.scales)


def test_a_row_has_the_same_bits_alone():
    x = gate_up(896, torch.float32)

    assert torch.equal(silu_mul(x)[2:3], silu_mul(x[2:3].clone()))


def test_large_gates_neither_overflow_nor_vanish():
    x = torch.tensor([[-1e4, -100.0, 100.0, 1e4, 1.0, 1.0, 1.0, 1.0]])

    result = silu_mul(x)

    assert result.tolist()[0][2:] == [100.0, 1e4]
    assert result[0, :2].abs().max() < 1e-30


def test_an_odd_row_has_no_halves():
    with pytest.raises(ValueError, match="no halves"):
        silu_mul(torch.zeros(1, 7))


@pytest.mark.parametrize("target", TARGETS)
def test_it_compiles_for_every_target(target: Target):
    compiled = compile_for(
        module._gated_codes,
        {
            "gate_ptr": "*bf16",
            "up_ptr": "*bf16",
            "codes_ptr": "*u8",
            "scales_ptr": "*fp32",
            "gate_stride": "i32:16",
            "up_stride": "i32:16",
            "inner": "i32:16",
        },
        {"GELU": True, "BLOCK": module._CODES_BLOCK},
        target,
        num_warps=8,
    )

    assert_fits(compiled, target)
