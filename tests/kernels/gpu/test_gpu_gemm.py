"""Products on a GPU: interpreted against torch, and a row's bits in every company."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.gpu.gemm import gemm, prove_row_tiles
from kernels.gpu.matrix_plan import ROW_TILES, matrix_plan
from kernels.gpu.quantization import RowFormat, quantise_rows

TOLERANCES = {torch.float32: 1e-6, torch.float16: 1e-3}  # of the largest result
CPU = torch.device("cpu")


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(result: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert (result.double() - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("num_rows", [1, 17, 70, 130])  # of each tile, less and more
@pytest.mark.parametrize(
    ("num_out", "num_in", "num_segments"), [(150, 576, 1), (70, 1536, 3), (70, 130, 1)]
)
def test_products_are_torchs(num_out, num_in, num_segments, num_rows, dtype):
    x, weight = random(num_rows, num_in, dtype=dtype), random(num_out, num_in, dtype=dtype, seed=1)
    bias = random(num_out, dtype=dtype, seed=2)
    assert matrix_plan(num_out, num_in, dtype).num_segments == num_segments

    result = gemm(x, weight, bias)

    assert result.dtype is dtype
    assert_near(result, x.double() @ weight.double().T + bias, TOLERANCES[dtype])


@pytest.mark.parametrize("num_rows", [3, 70])
@pytest.mark.parametrize("format_", list(RowFormat))
def test_codes_are_multiplied_and_scaled(format_, num_rows):
    x, weight = random(num_rows, 1536), random(100, 1536, seed=1)
    bias = random(100, seed=2)
    rows, outputs = quantise_rows(x, format_), quantise_rows(weight, format_)

    result = gemm(
        rows.codes,
        outputs.codes,
        bias,
        x_scales=rows.scales,
        w_scales=outputs.scales,
        out_dtype=torch.float32,
    )

    expected = rows.dequantise().double() @ outputs.dequantise().double().T + bias
    assert_near(result, expected, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_rows_bits_depend_on_neither_its_place_nor_its_company(dtype):
    x, weight = random(130, 1100, dtype=dtype), random(70, 1100, dtype=dtype, seed=1)
    assert matrix_plan(70, 1100, dtype).num_segments == 2
    every = gemm(x, weight)

    for first, count in ((0, 1), (129, 1), (3, 16), (5, 40), (1, 100)):
        rows = slice(first, first + count)
        assert torch.equal(gemm(x[rows], weight), every[rows])


def test_tiles_are_proved_by_sums_that_are_nothing_but_rounding():
    assert prove_row_tiles([(20, 64)], torch.float32, CPU) == ROW_TILES


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_a_tile_that_sums_in_another_order_is_left_out(dtype, monkeypatch):
    def other_order(x, weight, bias, x_scales, w_scales, out, plan, tile):
        x, weight = x.float(), weight.float()
        if tile.rows == 64:
            x, weight = x.flip(1), weight.flip(1)
        sums = [np.cumsum((row * weight).numpy(), axis=1)[:, -1] for row in x]
        out.copy_(torch.from_numpy(np.stack(sums)))

    monkeypatch.setattr("kernels.gpu.gemm._launch", other_order)

    assert prove_row_tiles([(70, 192)], dtype, CPU) == (16, 128)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weight": torch.zeros(4, 31)}, "x .* and a weight"),
        ({"weight": torch.zeros(4, 32).half()}, "x .* and a weight"),
        ({"weight": torch.zeros(32, 4).T}, "not adjacent"),
        ({"bias": torch.zeros(3)}, "bias has shape"),
        ({"out_dtype": torch.int8}, "need an out_dtype"),
    ],
    ids=["size", "type", "layout", "bias", "out_dtype"],
)
def test_what_does_not_fit_is_refused(changed, message):
    arguments = {"x": torch.zeros(2, 32), "weight": torch.zeros(4, 32)} | changed

    with pytest.raises(ValueError, match=message):
        gemm(**arguments)
