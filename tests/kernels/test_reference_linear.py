"""Products whose rows do not know each other."""

from __future__ import annotations

import functools

import pytest
import torch

from kernels.encoder import EncoderActivation
from kernels.reference.linear import (
    HEAD_TILES,
    LAYER_TILES,
    DenseLinear,
    PackedLinear,
    RowTiles,
    matrix_bytes,
    pack,
    packs,
    prove_tiles,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# in, out: SmolLM2-135M's and Qwen2.5-0.5B's matrices, and sizes that fill no vector.
SHAPES = ((576, 960), (1536, 576), (896, 1152), (4864, 896), (48, 100))


def _matrix(num_in: int, num_out: int, dtype: torch.dtype, *, bias: bool = False):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(num_out, num_in, generator=generator) * num_in**-0.5
    offset = torch.randn(num_out, generator=generator).to(dtype) if bias else None
    return weight.to(dtype), offset


def _rows(num_rows: int, num_in: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(num_rows, num_in, generator=torch.Generator().manual_seed(1)).to(dtype)


def _padded_product(tiles: RowTiles, linear, x: torch.Tensor) -> torch.Tensor:
    pad = tiles.padded(len(x)) - len(x)
    return tiles.apply(linear, torch.nn.functional.pad(x, (0, 0, 0, pad)))[: len(x)]


@pytest.mark.parametrize("num_threads", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_in", "num_out"), SHAPES)
def test_a_row_is_the_same_alone_and_in_any_batch(num_threads, dtype, num_in, num_out) -> None:
    if not packs(dtype):
        num_in, num_out = num_in // 4, num_out // 4  # torch's own product is slow in float16
    linear = pack(*_matrix(num_in, num_out, dtype))
    tiles = prove_tiles([linear.shape], LAYER_TILES, dtype)
    x = _rows(600, num_in, dtype)
    alone = torch.cat([_padded_product(tiles, linear, row) for row in x.split(1)])

    for num_rows in (*range(1, 71), 512, 543, 600):
        first = (600 - num_rows) // 2
        together = _padded_product(tiles, linear, x[first : first + num_rows])
        assert torch.equal(together, alone[first : first + num_rows]), num_rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
def test_the_result_is_the_product(dtype, bias) -> None:
    weight, offset = _matrix(96, 80, dtype, bias=bias)
    x = _rows(8, 96, dtype)

    exact = x.double() @ weight.double().T + (offset.double() if bias else 0)

    y = pack(weight, offset)(x)
    assert y.dtype is dtype
    # Summed in float32, rounded once: half a unit of the type, and the sum's own error.
    tolerance = torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), exact, rtol=tolerance, atol=1e-5)


def test_packed_and_dense_agree() -> None:
    weight, offset = _matrix(576, 960, torch.float32, bias=True)
    x = _rows(16, 576, torch.float32)

    packed, dense = PackedLinear(weight, offset), DenseLinear(weight, offset)

    torch.testing.assert_close(packed(x), dense(x))
    assert packed.shape == dense.shape == (960, 576)
    assert packed.nbytes == dense.nbytes == matrix_bytes((960, 576), torch.float32) + 960 * 4


@pytest.mark.parametrize("make", [DenseLinear, PackedLinear])
@pytest.mark.parametrize(
    ("activation", "function"),
    [
        (EncoderActivation.GELU, torch.nn.functional.gelu),
        (
            EncoderActivation.GELU_TANH,
            functools.partial(torch.nn.functional.gelu, approximate="tanh"),
        ),
        (EncoderActivation.RELU, torch.relu),
        (EncoderActivation.TANH, torch.tanh),
    ],
)
def test_a_product_may_end_in_an_activation(make, activation, function) -> None:
    if make is PackedLinear and not packs(torch.float32):
        pytest.skip("oneDNN cannot pack float32 on this machine")
    weight, bias = _matrix(48, 100, torch.float32, bias=True)
    x = 3 * _rows(24, 48, torch.float32)

    found = make(weight, bias, activation)(x)

    torch.testing.assert_close(found, function(x @ weight.T + bias), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("wanted", "computed"),
    [(0, 0), (1, 8), (8, 8), (9, 16), (33, 40), (65, 80), (512, 512), (513, 520), (1100, 1104)],
)
def test_rows_are_padded_to_the_tightest_tiles(wanted, computed) -> None:
    tiles = RowTiles(LAYER_TILES[1:])

    assert tiles.padded(wanted) == computed


def _bad_at(*sizes: int):
    """A maker of products that sum from the other end at some numbers of rows."""

    def make(weight: torch.Tensor, bias: torch.Tensor | None):
        forward, backward = DenseLinear(weight, bias), DenseLinear(weight.flip(1), bias)
        return lambda x: backward(x.flip(1)) if len(x) in sizes else forward(x)

    return make


def _bad_by_place(weight: torch.Tensor, bias: torch.Tensor | None):
    """A product that sums every second row from the other end."""
    forward, backward = DenseLinear(weight, bias), DenseLinear(weight.flip(1), bias)

    def product(x: torch.Tensor) -> torch.Tensor:
        y = forward(x)
        y[::2] = backward(x.flip(1))[::2]
        return y

    return product


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_size_that_sums_in_another_order_is_left_out(dtype) -> None:
    shapes = [(64, 96), (64, 33)]

    tiles = prove_tiles(shapes, HEAD_TILES[1:], dtype, make=_bad_at(16, 48))

    assert tiles.sizes == tuple(size for size in HEAD_TILES[1:] if size not in (16, 48))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_go_one_by_one_where_their_place_matters(dtype) -> None:
    tiles = prove_tiles([(64, 96)], HEAD_TILES, dtype, make=_bad_by_place)

    assert tiles.sizes == (1,)
    assert tiles.padded(5) == 5
    x = _rows(5, 96, dtype)
    linear = DenseLinear(_matrix(96, 64, dtype)[0])
    assert torch.equal(tiles.apply(linear, x), torch.cat([linear(row) for row in x.split(1)]))
