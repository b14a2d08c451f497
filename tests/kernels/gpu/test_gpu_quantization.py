"""Rows as 8-bit codes: against torch's own rounding."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.gpu.quantization import RowFormat, quantise_rows

LIMITS = {RowFormat.INT8: 127.0, RowFormat.FP8: 448.0}


def expected_codes(x: torch.Tensor, format_: RowFormat) -> torch.Tensor:
    """Codes by torch, as float32."""
    largest = x.float().abs().amax(1, keepdim=True)
    # A number over a tensor would be rounded twice.
    scaled = x.float() * (torch.full_like(largest, LIMITS[format_]) / largest)
    if format_ is RowFormat.INT8:
        return scaled.round()
    return scaled.clamp(-448, 448).to(torch.float8_e4m3fn).float()


@pytest.mark.parametrize("format_", list(RowFormat))
@pytest.mark.parametrize("size", [1, 576, 1000, 16_500])
def test_codes_are_rounded_to_nearest_and_scales_bring_them_back(size, format_):
    x = torch.randn(3, size, generator=torch.Generator().manual_seed(0))

    rows = quantise_rows(x, format_)

    assert rows.codes.dtype is format_.dtype
    assert torch.equal(rows.codes.float(), expected_codes(x, format_))
    largest = x.abs().amax(1, keepdim=True)
    step = 0.5 / 127 if format_ is RowFormat.INT8 else 1 / 16
    assert ((rows.dequantise() - x).abs() <= largest * step * 1.001).all()


@pytest.mark.parametrize("format_", list(RowFormat))
def test_ties_go_to_even_codes(format_):
    limit = LIMITS[format_]
    x = torch.tensor([[limit, 0.5, 1.5, 2.5, -2.5, 17.0, 19.0, 2**-10, 3 * 2**-10]])

    rows = quantise_rows(x, format_)

    assert rows.scales.item() == 1.0
    assert torch.equal(rows.codes.float(), expected_codes(x, format_))


@pytest.mark.parametrize("format_", list(RowFormat))
def test_a_row_of_zeros_stays_zero(format_):
    rows = quantise_rows(torch.zeros(1, 70), format_)

    assert rows.scales.item() == 0.0
    assert not rows.codes.float().any()


@pytest.mark.parametrize("format_", list(RowFormat))
@pytest.mark.filterwarnings("ignore:invalid value")  # of numpy, which stands in for the device
def test_a_fault_shows_in_its_own_row_only(format_):
    x = torch.ones(3, 70)
    x[1, 5] = math.nan

    rows = quantise_rows(x, format_)

    assert torch.isnan(rows.scales).tolist() == [False, True, False]
