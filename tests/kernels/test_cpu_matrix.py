"""The matrix kernels of each instruction set against numpy, over formats and shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.cpu import library
from kernels.cpu.matrix import BLOCK_ROWS, PackedMatrix, Rows, multiply, read_row
from tests.kernels import packed_matrices

FORMATS = [
    ("bfloat16", 0),
    ("int8", 0),
    *((name, group) for name in ("group8", "group4", "group4min") for group in (32, 64)),
]
ISAS = library.require().isas
# Tiles hold up to 12 rows: one tile of each height, the seams between tiles, and many tiles.
NUM_ROWS = (*range(1, 14), 24, 25, 31, 70)

each_format = pytest.mark.parametrize(("format", "group"), FORMATS)
each_isa = pytest.mark.parametrize("isa", ISAS)


@dataclass(frozen=True)
class Operands:
    """A packed matrix and rows, and the numbers that they stand for."""

    matrix: PackedMatrix
    rows: Rows
    weights: NDArray[np.float64]  # [num_blocks * 32, cols]
    activations: NDArray[np.float64]  # [num_rows, cols]


def make_matrix(format: str, group: int, num_rows: int, cols: int, seed: int = 0) -> PackedMatrix:
    """Weights all over the range of the format."""
    rng = np.random.default_rng(seed)
    if format == "bfloat16":
        floats = rng.standard_normal((num_rows, cols), dtype=np.float32)
        return packed_matrices.pack_bfloat16(packed_matrices.to_bfloat16(floats))
    stored = rng.integers(0, 256 if format in ("int8", "group8") else 16, (num_rows, cols))
    stored = stored.astype(np.uint8)
    if format == "int8":
        return packed_matrices.pack_int8(stored, rng.random(num_rows, dtype=np.float32))
    scales = rng.uniform(-0.01, 0.01, (num_rows, -(-cols // group))).astype(np.float16)
    mins = rng.uniform(-0.1, 0.1, scales.shape).astype(np.float16)
    return packed_matrices.pack_groups(
        format, group, stored, scales, mins if format == "group4min" else None
    )


def make_operands(format: str, group: int, num_rows: int, cols: int, outputs: int) -> Operands:
    """The matrix and as many rows of activations."""
    rng = np.random.default_rng(num_rows)
    matrix = make_matrix(format, group, outputs, cols)
    if format == "bfloat16":
        bits = packed_matrices.to_bfloat16(rng.standard_normal((num_rows, cols), dtype=np.float32))
        rows = Rows(bf16=bits)
        activations = packed_matrices.from_bfloat16(bits).astype(np.float64)
    else:
        values = rng.integers(-127, 128, (num_rows, cols)).astype(np.int8)
        num_scales = -(-cols // 64) * 64 // group if group else 1
        scales = rng.random((num_rows, num_scales), dtype=np.float32)
        rows = packed_matrices.int8_rows(values, scales)
        of_columns = scales.repeat(group or cols, axis=1)[:, :cols]
        activations = values * of_columns.astype(np.float64)
    return Operands(matrix, rows, packed_matrices.weights(matrix), activations)


def product(
    operands: Operands,
    isa: str,
    *,
    num_rows: int,
    num_blocks: int | None = None,
    first_row: int = 0,
    first_block: int = 0,
    bias: NDArray[np.float32] | None = None,
    add_to: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """What the kernel writes, [num_rows, num_blocks * 32]."""
    blocks = operands.matrix.num_blocks if num_blocks is None else num_blocks
    out = np.full((num_rows, blocks * BLOCK_ROWS), np.nan, np.float32)
    if add_to is not None:
        out[:] = add_to
    status = multiply(
        library.require().handle,
        library.ISAS.index(isa),
        operands.matrix,
        operands.rows,
        out,
        first_row=first_row,
        first_block=first_block,
        bias=bias,
        add=add_to is not None,
    )
    assert status == 0
    return out


def assert_close(
    out: NDArray[np.float32], operands: Operands, expected: NDArray[np.float64]
) -> None:
    """Equal up to the rounding of float32 sums of `cols` products."""
    magnitude = np.abs(operands.activations) @ np.abs(operands.weights).T
    error = np.abs(out - expected) / magnitude
    assert error.max() < 2e-7 * np.sqrt(operands.matrix.cols)


@each_isa
@each_format
@pytest.mark.parametrize("cols", [64, 128, 576, 896, 1536])
def test_the_product_is_that_of_the_numbers_stored(
    format: str, group: int, isa: str, cols: int
) -> None:
    operands = make_operands(format, group, 13, cols, outputs=96)

    out = product(operands, isa, num_rows=13)

    assert_close(out, operands, operands.activations @ operands.weights.T)


@each_isa
@each_format
def test_a_long_row_overflows_nothing(format: str, group: int, isa: str) -> None:
    operands = make_operands(format, group, 2, 4864, outputs=32)
    if format != "bfloat16":
        assert operands.rows.int8 is not None
        extreme = np.full_like(operands.rows.int8, -127)
        operands = Operands(
            operands.matrix,
            packed_matrices.int8_rows(extreme, np.ones_like(operands.rows.scales)),
            operands.weights,
            extreme.astype(np.float64),
        )

    out = product(operands, isa, num_rows=2)

    assert_close(out, operands, operands.activations @ operands.weights.T)


@each_format
@pytest.mark.parametrize("isa", ISAS[1:])
def test_every_instruction_set_computes_the_same_bits(format: str, group: int, isa: str) -> None:
    operands = make_operands(format, group, 13, 576, outputs=64)

    out = product(operands, isa, num_rows=13)

    np.testing.assert_array_equal(out, product(operands, "portable", num_rows=13))


@each_isa
@each_format
def test_a_row_gets_the_same_bits_in_any_batch(format: str, group: int, isa: str) -> None:
    operands = cancelling(make_operands(format, group, 70, 576, outputs=32))
    alone = np.concatenate([product(operands, isa, num_rows=1, first_row=r) for r in range(70)])

    for num_rows in NUM_ROWS:
        for first_row in {0, 1, 70 - num_rows} & set(range(71 - num_rows)):
            together = product(operands, isa, num_rows=num_rows, first_row=first_row)

            np.testing.assert_array_equal(together, alone[first_row : first_row + num_rows])


def cancelling(operands: Operands) -> Operands:
    """Rows whose second half undoes the first: any other order of float32 sums gives other bits."""
    half = operands.matrix.cols // 2
    if operands.rows.bf16 is not None:
        bits = operands.rows.bf16.copy()
        bits[:, half:] = bits[:, :half] ^ 0x8000
        rows = Rows(bf16=bits)
    else:
        assert operands.rows.int8 is not None
        assert operands.rows.scales is not None
        values = operands.rows.int8.copy()
        values[:, half:] = -values[:, :half]
        rows = packed_matrices.int8_rows(values, operands.rows.scales)
    return Operands(operands.matrix, rows, operands.weights, operands.activations)


@each_isa
@each_format
def test_a_block_is_computed_without_the_others(format: str, group: int, isa: str) -> None:
    operands = make_operands(format, group, 5, 128, outputs=160)

    part = product(operands, isa, num_rows=5, first_block=2, num_blocks=2)

    np.testing.assert_array_equal(part, product(operands, isa, num_rows=5)[:, 64:128])


@each_isa
@each_format
@pytest.mark.parametrize("num_rows", [1, 5, 30])
def test_a_bias_and_what_was_there_are_added(
    format: str, group: int, isa: str, num_rows: int
) -> None:
    operands = make_operands(format, group, num_rows, 64, outputs=64)
    rng = np.random.default_rng(1)
    bias = rng.standard_normal(64, dtype=np.float32)
    before = rng.standard_normal((num_rows, 64), dtype=np.float32)

    out = product(operands, isa, num_rows=num_rows, bias=bias, add_to=before)

    plain = product(operands, isa, num_rows=num_rows)
    np.testing.assert_array_equal(out, before + (plain + bias))


@each_isa
@each_format
def test_padding_counts_as_zero(format: str, group: int, isa: str) -> None:
    """40 of 96 outputs and 576 - 32 of the padded columns are there; the rows end with zeros."""
    operands = make_operands(format, group, 3, 544, outputs=40)
    padded = np.zeros((3, 576), np.float64)
    padded[:, :544] = operands.activations
    rows = pad_columns(operands.rows, 576)

    out = product(Operands(operands.matrix, rows, operands.weights, padded), isa, num_rows=3)

    assert operands.matrix.cols == 576
    assert operands.matrix.num_blocks == 2
    np.testing.assert_allclose(
        out, padded @ operands.weights.T, atol=1e-5 * np.abs(out).max(), rtol=0
    )


def pad_columns(rows: Rows, cols: int) -> Rows:
    """The rows with zeros at their ends."""
    if rows.bf16 is not None:
        return Rows(bf16=np.pad(rows.bf16, ((0, 0), (0, cols - rows.bf16.shape[1]))))
    assert rows.int8 is not None
    assert rows.scales is not None
    values = np.pad(rows.int8, ((0, 0), (0, cols - rows.int8.shape[1])))
    return packed_matrices.int8_rows(values, rows.scales)


@each_isa
@each_format
def test_a_row_of_the_matrix_is_read_back(format: str, group: int, isa: str) -> None:
    matrix = make_matrix(format, group, 96, 576)
    expected = packed_matrices.weights(matrix)

    for row in (0, 31, 45, 95):
        out = np.full(570, np.nan, np.float32)
        status = read_row(library.require().handle, library.ISAS.index(isa), matrix, row, out)

        assert status == 0
        np.testing.assert_array_equal(out, expected[row, :570].astype(np.float32))


def test_an_unknown_instruction_set_is_refused() -> None:
    operands = make_operands("bfloat16", 0, 1, 64, outputs=32)
    out = np.zeros((1, 32), np.float32)

    status = multiply(library.require().handle, 99, operands.matrix, operands.rows, out)

    assert status == 1
    assert not out.any()
