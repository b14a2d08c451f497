"""Weights on their way into packed matrices: values against their definition, places against
`packed_matrices`, and GGUF blocks against the gguf package."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from kernels.backend import StoredTensor
from kernels.cpu import library
from kernels.cpu.matrix import BLOCK_ROWS, PackedMatrix
from kernels.cpu.packing import Destination, MatrixFormat, NotFiniteError, pack_rows
from kernels.cpu.weight_layout import block_bytes
from kernels.cpu.weights import empty_buffer
from kernels.reference import quantization
from tests.kernels import packed_matrices

SHAPES = [(1, 64), (32, 64), (33, 576), (40, 1536), (64, 100), (7, 40)]
GROUPED = [(MatrixFormat.GROUP8, 32), (MatrixFormat.GROUP4, 32), (MatrixFormat.GROUP4, 64)]
DEFINITIONS = {
    MatrixFormat.GROUP8: quantization.int8_groups,
    MatrixFormat.GROUP4: quantization.int4_groups,
}


def gaussian(shape: tuple[int, int], seed: int = 1) -> np.ndarray:
    """Weights of a usual size, with some rows and groups of zeros."""
    w = np.random.default_rng(seed).normal(0, 0.02, shape).astype(np.float32)
    w[3::17] = 0.0
    w[:, 32:64][5::11] = 0.0
    return w


def stored(w: np.ndarray, scheme: str) -> StoredTensor:
    """`w` in a dense scheme (rounded down to it) or in GGUF blocks."""
    if scheme == "F32":
        data = w.astype(np.float32).view(np.uint8)
    elif scheme == "F16":
        data = w.astype(np.float16).view(np.uint8)
    elif scheme == "BF16":
        data = (w.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    elif scheme == "Q4_K":  # which gguf reads but does not write: any bytes, with usual scales
        rng = np.random.default_rng(2)
        blocks = rng.integers(0, 256, (w.size // 256, 144), np.uint8)
        blocks[:, :4] = np.array([0.0011, 0.0037], np.float16).view(np.uint8)
        data = blocks
    else:
        data = quantize(w, GGMLQuantizationType[scheme])
    return StoredTensor(scheme, w.shape, data.reshape(-1))


def pack(
    rows: StoredTensor,
    format_: MatrixFormat,
    group: int = 0,
    *,
    num_threads: int = 2,
    isa: str | None = None,
) -> PackedMatrix:
    num_rows, cols = rows.shape
    padded = -(-cols // 64) * 64
    num_blocks = -(-num_rows // BLOCK_ROWS)
    out = empty_buffer(num_blocks * block_bytes(format_, padded, group))
    to = Destination(out.ctypes.data, format_, group)
    pack_rows(library.require(), rows, to, num_threads, isa)
    return PackedMatrix(format_.name.lower(), group, padded, num_blocks, out)


def padded_to(w: np.ndarray, unit: int) -> np.ndarray:
    return np.pad(w, ((0, 0), (0, -w.shape[1] % unit)))


@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_rounds_to_the_nearest_and_pads_with_zeros(shape: tuple[int, int]) -> None:
    w = gaussian(shape)

    packed = pack(stored(w, "F32"), MatrixFormat.BFLOAT16)

    expected = packed_matrices.pack_bfloat16(packed_matrices.to_bfloat16(w))
    np.testing.assert_array_equal(packed.data, expected.data)


@pytest.mark.parametrize("shape", SHAPES)
def test_int8_is_its_definition_bit_for_bit(shape: tuple[int, int]) -> None:
    w = gaussian(shape)

    packed = pack(stored(w, "F32"), MatrixFormat.INT8)

    defined = quantization.int8_channels(quantization.rotated(padded_to(w, 64)))
    expected = packed_matrices.pack_int8(defined.codes, defined.scales[:, 0])
    np.testing.assert_array_equal(packed.data, expected.data)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("format_", "group"), GROUPED)
def test_groups_are_their_definition_bit_for_bit(
    shape: tuple[int, int], format_: MatrixFormat, group: int
) -> None:
    w = gaussian(shape)
    packed = pack(stored(w, "F32"), format_, group)

    defined = DEFINITIONS[format_](padded_to(w, group), group)
    expected = packed_matrices.pack_groups(packed.format, group, defined.codes, defined.scales)
    np.testing.assert_array_equal(packed.data, expected.data)


@pytest.mark.parametrize("size", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize(("format_", "group"), GROUPED)
def test_small_weights_have_subnormal_scales_or_become_zero(
    format_: MatrixFormat, group: int, size: float
) -> None:
    w = gaussian((64, 128)) * np.float32(size)

    packed = pack(stored(w, "F32"), format_, group)

    defined = DEFINITIONS[format_](w, group)
    expected = packed_matrices.pack_groups(packed.format, group, defined.codes, defined.scales)
    np.testing.assert_array_equal(packed.data, expected.data)


@pytest.mark.parametrize("scheme", ["F16", "BF16"])
@pytest.mark.parametrize("format_", [MatrixFormat.BFLOAT16, MatrixFormat.INT8])
def test_sixteen_bit_weights_pack_as_their_float32_values_do(
    scheme: str, format_: MatrixFormat
) -> None:
    rows = stored(gaussian((45, 192)), scheme)

    packed = pack(rows, format_)

    expected = pack(stored(rows.to_float32(), "F32"), format_)
    np.testing.assert_array_equal(packed.data, expected.data)


def test_every_float16_is_read_as_the_number_it_is() -> None:
    finite = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = finite[np.isfinite(finite)].reshape(-1, 64)

    packed = pack(stored(finite, "F16"), MatrixFormat.BFLOAT16)

    expected = packed_matrices.to_bfloat16(finite.astype(np.float32))
    np.testing.assert_array_equal(packed.data, packed_matrices.pack_bfloat16(expected).data)


@pytest.mark.parametrize(
    ("scheme", "format_"),
    [
        ("Q4_0", MatrixFormat.GROUP4),
        ("Q4_0", MatrixFormat.GROUP4MIN),
        ("Q4_0", MatrixFormat.GROUP8),
        ("Q4_1", MatrixFormat.GROUP4MIN),
        ("Q5_0", MatrixFormat.GROUP8),
        ("Q8_0", MatrixFormat.GROUP8),
    ],
)
def test_gguf_blocks_keep_their_values_exactly(scheme: str, format_: MatrixFormat) -> None:
    rows = stored(gaussian((41, 576)), scheme)

    packed = pack(rows, format_, 32)

    expected = dequantize(rows.data.reshape(41, -1), GGMLQuantizationType[scheme])
    found = packed_matrices.weights(packed)[:41, :576]
    # gguf adds a min in float32, the test in float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


def test_q4_k_keeps_its_codes_and_rounds_its_scales_to_float16() -> None:
    rows = stored(gaussian((33, 512)), "Q4_K")

    packed = pack(rows, MatrixFormat.GROUP4MIN, 32)

    expected = rows.to_float32()
    found = packed_matrices.weights(packed)[:33, :512]
    np.testing.assert_allclose(found, expected, rtol=0, atol=2**-11 * np.abs(expected).max())


@pytest.mark.parametrize("scheme", ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K"])
@pytest.mark.parametrize(
    ("format_", "group"),
    [(MatrixFormat.BFLOAT16, 0), (MatrixFormat.INT8, 0), (MatrixFormat.GROUP4, 64)],
)
def test_gguf_blocks_go_to_other_formats_by_way_of_their_values(
    scheme: str, format_: MatrixFormat, group: int
) -> None:
    rows = stored(gaussian((35, 256)), scheme)

    packed = pack(rows, format_, group)

    expected = pack(stored(rows.to_float32(), "F32"), format_, group)
    np.testing.assert_array_equal(packed.data, expected.data)


def test_four_bits_keep_a_grid_of_sixteen_steps_exactly() -> None:
    grid = stored(gaussian((64, 512)), "Q4_0").to_float32()

    packed = pack(stored(grid, "F32"), MatrixFormat.GROUP4, 32)

    np.testing.assert_array_equal(packed_matrices.weights(packed), grid)


@pytest.mark.parametrize(
    ("format_", "group", "largest_error"),  # relative to the root mean square of the weights
    [
        (MatrixFormat.BFLOAT16, 0, 0.002),
        (MatrixFormat.INT8, 0, 0.01),
        (MatrixFormat.GROUP8, 32, 0.006),
        (MatrixFormat.GROUP4, 32, 0.085),
        (MatrixFormat.GROUP4, 64, 0.10),
    ],
)
def test_what_a_round_trip_loses_of_gaussian_weights(
    format_: MatrixFormat, group: int, largest_error: float
) -> None:
    w = np.random.default_rng(3).normal(0, 0.02, (256, 576)).astype(np.float32)

    found = packed_matrices.weights(pack(stored(w, "F32"), format_, group))
    if format_ is MatrixFormat.INT8:
        found = quantization.rotated(found)

    error = np.sqrt(np.mean((found - w) ** 2) / np.mean(w**2))
    assert largest_error / 2 < error < largest_error


def test_the_scale_search_loses_less_than_the_usual_anchor_alone() -> None:
    w = np.random.default_rng(4).normal(0, 0.02, (256, 576)).astype(np.float32)

    searched = packed_matrices.weights(pack(stored(w, "F32"), MatrixFormat.GROUP4, 32))

    anchored = stored(w, "Q4_0").to_float32()  # the largest weight at -8
    assert np.square(searched - w).sum() < 0.9 * np.square(anchored - w).sum()


def test_parts_of_a_matrix_interleave_by_blocks() -> None:
    gate, up = gaussian((64, 64), seed=5), gaussian((64, 64), seed=6)
    size = block_bytes(MatrixFormat.INT8, 64, 0)
    out = empty_buffer(4 * size)

    for i, part in enumerate((gate, up)):
        to = Destination(out.ctypes.data, MatrixFormat.INT8, 0, first_block=i, block_step=2)
        pack_rows(library.require(), stored(part, "F32"), to, 1)

    blocks = out.reshape(4, size)
    np.testing.assert_array_equal(
        blocks[::2].reshape(-1), pack(stored(gate, "F32"), MatrixFormat.INT8).data
    )
    np.testing.assert_array_equal(
        blocks[1::2].reshape(-1), pack(stored(up, "F32"), MatrixFormat.INT8).data
    )


@pytest.mark.parametrize("isa", library.require().isas)
def test_instruction_sets_change_no_byte(isa: str) -> None:
    w = gaussian((70, 192))

    packed = pack(stored(w, "F32"), MatrixFormat.GROUP4, 32, isa=isa)

    defined = quantization.int4_groups(w, 32)
    expected = packed_matrices.pack_groups("group4", 32, defined.codes, defined.scales)
    np.testing.assert_array_equal(packed.data, expected.data)


@pytest.mark.parametrize(("format_", "group"), [(MatrixFormat.INT8, 0), (MatrixFormat.GROUP4, 32)])
def test_threads_change_no_byte(format_: MatrixFormat, group: int) -> None:
    rows = stored(gaussian((300, 128)), "F32")

    alone = pack(rows, format_, group, num_threads=1)

    np.testing.assert_array_equal(pack(rows, format_, group, num_threads=3).data, alone.data)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scheme", ["F32", "F16", "BF16"])
@pytest.mark.parametrize(
    ("format_", "group"), [(MatrixFormat.BFLOAT16, 0), (MatrixFormat.INT8, 0), *GROUPED]
)
def test_the_first_weight_that_is_not_finite_is_named(
    bad: float, scheme: str, format_: MatrixFormat, group: int
) -> None:
    w = gaussian((70, 100))
    w[69, 3] = w[40, 99] = w[40, 98] = bad

    with pytest.raises(NotFiniteError, match="the first at row 40, column 98"):
        pack(stored(w, scheme), format_, group)


@pytest.mark.parametrize(
    ("scheme", "scale_at"), [("Q4_0", 0), ("Q4_1", 2), ("Q8_0", 0), ("Q4_K", 0)]
)
def test_a_block_whose_scale_is_not_finite_is_named(scheme: str, scale_at: int) -> None:
    rows = stored(gaussian((3, 256)), scheme)
    rows.data.reshape(3, -1)[2, scale_at : scale_at + 2] = np.array([np.inf], np.float16).view(
        np.uint8
    )
    format_ = {"Q4_0": MatrixFormat.GROUP4, "Q8_0": MatrixFormat.GROUP8}.get(
        scheme, MatrixFormat.GROUP4MIN
    )

    with pytest.raises(NotFiniteError, match="the first at row 2, column 0"):
        pack(rows, format_, 32)


@pytest.mark.parametrize(
    ("format_", "group", "too_large"),
    [
        (MatrixFormat.BFLOAT16, 0, 3.4e38),
        (MatrixFormat.GROUP8, 32, 1e7),
        (MatrixFormat.GROUP4, 32, 1e6),
    ],
)
def test_a_weight_beyond_what_the_format_holds_is_refused(
    format_: MatrixFormat, group: int, too_large: float
) -> None:
    w = gaussian((2, 64))
    w[1, 5] = too_large

    with pytest.raises(NotFiniteError, match="the first at row 1, column 5"):
        pack(stored(w, "F32"), format_, group)


def test_too_few_bytes_for_the_shape_are_refused() -> None:
    rows = StoredTensor("F32", (32, 64), np.zeros(32 * 63 * 4, np.uint8))

    with pytest.raises(ValueError, match=r"8064 bytes of F32 are no matrix of 32 × 64"):
        pack(rows, MatrixFormat.INT8)


def test_a_scheme_that_the_format_cannot_be_made_from_is_refused() -> None:
    with pytest.raises(ValueError, match="F32 cannot be packed as group4min"):
        pack(stored(gaussian((32, 64)), "F32"), MatrixFormat.GROUP4MIN, 32)
