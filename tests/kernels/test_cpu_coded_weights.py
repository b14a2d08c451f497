"""Coded weights are moved into the C++ back end's layouts without rounding a code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from kernels.coded import INT4, INT8, UINT4, CodedRows, decoded
from kernels.cpu.packing import MatrixFormat
from tests.kernels import cpu_weights
from tests.kernels.decoder_steps import DictSource

GROUP = 64  # of codes: two of the engine's groups


@dataclass(frozen=True)
class Coded:
    """A `CodedTensor` in memory."""

    scheme: str
    whole: CodedRows
    nbytes: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole.codes.shape

    def rows(self, start: int, stop: int) -> CodedRows:
        zeros = self.whole.zeros
        return CodedRows(
            self.whole.codes[start:stop],
            self.whole.scales[start:stop],
            zeros if isinstance(zeros, int) else zeros[start:stop],
            self.whole.groups,
        )

    def to_float32(self) -> np.ndarray:
        return decoded(self)


def coded(shape: tuple[int, int], scheme: str, *, group: int = GROUP, seed: int = 0) -> Coded:
    """Codes over their whole range; scales that float16 has."""
    rng = np.random.default_rng(seed)
    groups = shape[1] // group
    most = 255 if scheme == INT8 else 15
    zeros = rng.integers(0, 16, (shape[0], groups)).astype(np.uint8)
    scales = rng.uniform(0.001, 0.01, (shape[0], groups)).astype(np.float16)
    codes = rng.integers(0, most + 1, shape).astype(np.uint8)
    zero = {INT4: 8, UINT4: zeros, INT8: 128}[scheme]
    return Coded(scheme, CodedRows(codes, scales.astype(np.float32), zero))


def packed_with(changes: dict[str, Coded], weights: str = "auto"):
    """The small model's weights, some of its matrices coded."""
    tensors = cpu_weights.source_of(cpu_weights.random_tensors(cpu_weights.WIDE)).weights
    source = DictSource(tensors | changes)
    return cpu_weights.load(cpu_weights.WIDE, source, weights)


DOWN = (96, 128)


@pytest.mark.parametrize(
    ("scheme", "format_"),
    [(INT4, MatrixFormat.GROUP4), (INT8, MatrixFormat.GROUP8)],
)
def test_symmetric_codes_are_kept_exactly(scheme, format_):
    down = coded(DOWN, scheme)

    weights = packed_with({"layers.0.down": down})

    assert weights.layout.matrices["layers.0.down"].format is format_
    assert np.array_equal(cpu_weights.values(weights, "layers.0.down"), down.to_float32())


def test_of_codes_with_zero_points_only_the_least_value_is_rounded():
    down = coded(DOWN, UINT4)

    weights = packed_with({"layers.0.down": down})

    values, meant = cpu_weights.values(weights, "layers.0.down"), down.to_float32()
    least = down.whole.scales * down.whole.zeros
    assert weights.layout.matrices["layers.0.down"].format is MatrixFormat.GROUP4MIN
    assert (np.abs(values - meant) <= np.repeat(least, GROUP, axis=1) * 2.0**-11).all()


def test_codes_beside_finer_ones_are_kept_exactly_in_int8():
    gate, up = coded((128, 96), UINT4, group=32), coded((128, 96), INT8, group=32, seed=1)

    weights = packed_with({"layers.0.gate": gate, "layers.0.up": up})

    values = cpu_weights.values(weights, "layers.0.gate_up")[:, :96].reshape(4, 2, 32, 96)
    assert weights.layout.matrices["layers.0.gate_up"].format is MatrixFormat.GROUP8
    assert np.array_equal(values[:, 0].reshape(128, 96), gate.to_float32())
    assert np.array_equal(values[:, 1].reshape(128, 96), up.to_float32())


def test_int4_moves_codes_that_are_in_it_already():
    down = coded(DOWN, INT4)

    weights = packed_with({"layers.0.down": down}, "int4")

    assert np.array_equal(cpu_weights.values(weights, "layers.0.down"), down.to_float32())


def test_none_decodes_to_bfloat16():
    down = coded(DOWN, UINT4)

    weights = packed_with({"layers.0.down": down}, "none")

    values, meant = cpu_weights.values(weights, "layers.0.down"), down.to_float32()
    assert weights.layout.matrices["layers.0.down"].format is MatrixFormat.BFLOAT16
    assert (np.abs(values - meant) <= np.abs(meant) * 2.0**-8).all()


def test_a_scale_that_float16_does_not_have_stops_the_load():
    down = coded(DOWN, INT4)
    down.whole.scales[3, 1] = 70_000.0

    with pytest.raises(ValueError, match=r"layers\.0\.down .*row 3, column 64"):
        packed_with({"layers.0.down": down})
