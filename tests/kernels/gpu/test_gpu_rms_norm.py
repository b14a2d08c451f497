"""Norms of rows on a GPU: interpreted against the reference, and compiled."""

from __future__ import annotations

import pytest
import torch
from compile_checks import SM90, TARGETS, Target, assert_fits, compile_for

from kernels.gpu import rms_norm as module
from kernels.gpu.quantization import RowFormat, quantise_rows, row_warps
from kernels.gpu.rms_norm import (
    add_rms_norm,
    add_rms_norm_quantised,
    rms_norm,
    rms_norm_quantised,
)
from kernels.reference.rms_norm import norm_scale
from kernels.reference.rms_norm import rms_norm as reference_norm

EPS = 1e-5
TOLERANCES = {torch.float32: 2e-6, torch.float16: 4e-3}  # a unit in the last place, about


def rows_of(size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Seven rows of size columns."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(7, size, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("size", [64, 576, 896, 1536])
def test_a_norm_is_the_references(size, offset, dtype):
    x = rows_of(size, dtype)
    scale = norm_scale(rows_of(size, dtype, 1)[0], offset, dtype)

    result = rms_norm(x, scale, EPS)

    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(
        result, reference_norm(x, scale, EPS), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("has_post", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_is_added_to_the_residual_stream_is_rounded_as_by_itself(dtype, has_post):
    x, residual = rows_of(576, dtype), rows_of(576, dtype, 1)
    scale, post = rows_of(576, dtype, 2)[:2]
    added = rms_norm(x, post, EPS) if has_post else x
    expected_residual = residual + added

    result = add_rms_norm(x, residual, scale, EPS, post if has_post else None)

    assert torch.equal(residual, expected_residual)
    assert torch.equal(result, rms_norm(expected_residual, scale, EPS))


@pytest.mark.parametrize("format_", list(RowFormat))
def test_codes_are_those_of_the_rounded_norm(format_):
    x, residual = rows_of(896, torch.float16), rows_of(896, torch.float16, 1)
    scale = rows_of(896, torch.float16, 2)[0]
    plain = quantise_rows(rms_norm(x, scale, EPS), format_)
    added = quantise_rows(add_rms_norm(x, residual.clone(), scale, EPS), format_)

    alone = rms_norm_quantised(x, scale, EPS, format_)
    with_sum = add_rms_norm_quantised(x, residual, scale, EPS, format_)

    for result, expected in ((alone, plain), (with_sum, added)):
        assert torch.equal(result.stored, expected.stored)
        assert torch.equal(result.scales, expected.scales)


def test_a_row_has_the_same_bits_alone_and_as_part_of_wider_rows():
    wide = rows_of(1000, torch.float16)
    x, scale = wide[:, :576], wide[0, :576].clone()

    assert torch.equal(rms_norm(x, scale, EPS)[3:4], rms_norm(x[3:4].clone(), scale, EPS))


@pytest.mark.parametrize(
    ("x", "scale"),
    [
        (torch.zeros(2, 8), torch.zeros(7)),
        (torch.zeros(8, 2).T, torch.zeros(8)),
        (torch.zeros(8), torch.zeros(8)),
    ],
    ids=["size", "layout", "rank"],
)
def test_what_does_not_fit_is_refused(x, scale):
    with pytest.raises(ValueError, match=r"scale of shape|not rows"):
        rms_norm(x, scale, EPS)


@pytest.mark.parametrize("out", ["*bf16", "*u8"])
@pytest.mark.parametrize("target", TARGETS)
def test_it_compiles_for_every_target(target: Target, out: str):
    compiled = compile_norm(target, 4096, out)

    assert_fits(compiled, target)
    assert "ld.global.v4" in compiled.ptx or "ld.global.L1::no_allocate.v4" in compiled.ptx


def test_the_longest_rows_fit():
    assert_fits(compile_norm(SM90, 16_384, "*bf16"), SM90)


def compile_norm(target: Target, size: int, out: str):
    """The kernel with a residual, as launched for rows of a size."""
    types = {
        "x_ptr": "*bf16",
        "residual_ptr": "*bf16",
        "scale_ptr": "*bf16",
        "out_ptr": out,
        "x_stride": "i32:16",
        "residual_stride": "i32:16",
        "size": "i32:16",
        "eps": "fp32",
    }
    constants = {"post_ptr": None, "SIZE_BLOCK": size}
    if out == "*bf16":
        constants["scales_ptr"] = None
    else:
        types["scales_ptr"] = "*fp32"
    return compile_for(module._rms_norm, types, constants, target, num_warps=row_warps(size))
