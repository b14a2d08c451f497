"""Where a decoder's weights lie once packed, in what format, and what is refused on the way."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels.backend import Precision
from kernels.cpu.packing import MatrixFormat
from kernels.cpu.weight_layout import plan_weights
from tests.kernels import packed_matrices
from tests.kernels.cpu_weights import SPEC, WIDE, load, random_tensors, source_of, stored_as, values
from tests.kernels.decoder_steps import DictSource


def rounded(w: np.ndarray) -> np.ndarray:
    return packed_matrices.from_bfloat16(packed_matrices.to_bfloat16(w))


def plan(source: DictSource, weights: str, spec=SPEC):
    return plan_weights(spec, source, Precision("bfloat16", weights, "auto"))


def test_each_part_of_a_fused_matrix_begins_at_a_block() -> None:
    tensors = random_tensors(SPEC)

    found = values(load(SPEC, source_of(tensors)), "layers.1.qkv")

    expected = np.zeros((96 + 32 + 32, 128), np.float32)
    expected[:72, :96] = rounded(tensors["layers.1.q"])
    expected[96:120, :96] = rounded(tensors["layers.1.k"])
    expected[128:152, :96] = rounded(tensors["layers.1.v"])
    np.testing.assert_array_equal(found, expected)


def test_blocks_of_gate_and_up_alternate() -> None:
    tensors = random_tensors(SPEC)

    found = values(load(SPEC, source_of(tensors)), "layers.0.gate_up")

    blocks = found.reshape(4, 2, 32, 128)
    gate, up = blocks[:, 0].reshape(128, 128), blocks[:, 1].reshape(128, 128)
    np.testing.assert_array_equal(gate[:104, :96], rounded(tensors["layers.0.gate"]))
    np.testing.assert_array_equal(up[:104, :96], rounded(tensors["layers.0.up"]))
    assert not gate[104:].any()
    assert not up[:, 96:].any()


def test_biases_lie_beside_the_rows_that_they_belong_to() -> None:
    tensors = random_tensors(SPEC)

    weights = load(SPEC, source_of(tensors))

    qkv = weights.bias("layers.0.qkv")
    np.testing.assert_array_equal(qkv[96:120], tensors["layers.0.k_bias"])
    assert not qkv[120:128].any()
    up = weights.bias("layers.0.gate_up").reshape(4, 2, 32)[:, 1].reshape(-1)
    np.testing.assert_array_equal(up[:104], tensors["layers.0.up_bias"])
    assert weights.bias("layers.0.o") is None
    assert weights.matrix("layers.0.o").bias_address is None


def test_norms_have_their_offset_added() -> None:
    tensors = random_tensors(SPEC)

    weights = load(SPEC, source_of(tensors))

    for name in ("layers.0.attn_norm", "layers.1.q_norm", "layers.1.post_mlp_norm", "final_norm"):
        np.testing.assert_array_equal(weights.norm(name), tensors[name] + np.float32(1))


def test_a_tied_head_is_the_embedding_and_held_once() -> None:
    tied = dataclasses.replace(SPEC, tied_head=True)
    tensors = random_tensors(tied)

    weights = load(tied, source_of(tensors))

    assert "embed" not in weights.layout.matrices
    np.testing.assert_array_equal(values(weights, "head")[:70, :96], rounded(tensors["embed"]))


def test_what_the_decoder_gets_are_addresses_within_the_buffer() -> None:
    weights = load(SPEC, source_of(random_tensors(SPEC)), "int8")

    view = weights.matrix("layers.1.down")

    slot = weights.layout.matrices["layers.1.down"]
    assert view.address == weights.buffer.ctypes.data + slot.offset
    assert view.bias_address == weights.bias("layers.1.down").ctypes.data
    assert view.address % 64 == 0
    assert (view.format, view.group, view.cols, view.num_blocks) == (MatrixFormat.INT8, 0, 128, 3)
    assert view.block_bytes == 32 * (4 + 128)


@pytest.mark.parametrize(
    ("weights", "layers", "head"),
    [
        ("none", MatrixFormat.BFLOAT16, MatrixFormat.BFLOAT16),
        ("auto", MatrixFormat.BFLOAT16, MatrixFormat.BFLOAT16),
        ("int8", MatrixFormat.INT8, MatrixFormat.INT8),
        ("int4", MatrixFormat.GROUP4, MatrixFormat.INT8),
    ],
)
def test_the_precision_that_is_asked_for_decides_the_formats(
    weights: str, layers: MatrixFormat, head: MatrixFormat
) -> None:
    layout = plan(source_of(random_tensors(SPEC)), weights)

    formats = {name: slot.format for name, slot in layout.matrices.items()}
    assert {formats.pop("head"), formats.pop("embed")} == {head}
    assert set(formats.values()) == {layers}


@pytest.mark.parametrize(
    ("scheme", "format_"),
    [
        ("Q4_0", MatrixFormat.GROUP4),
        ("Q4_1", MatrixFormat.GROUP4MIN),
        ("Q5_0", MatrixFormat.GROUP8),
        ("Q5_1", MatrixFormat.GROUP8),
        ("Q8_0", MatrixFormat.GROUP8),
    ],
)
def test_quantised_files_stay_in_their_own_precision(scheme: str, format_: MatrixFormat) -> None:
    stored = stored_as(scheme)

    weights = load(WIDE, DictSource(stored), "auto")

    assert {slot.format for slot in weights.layout.matrices.values()} == {format_}
    expected = stored["layers.1.down"].to_float32()
    found = values(weights, "layers.1.down")[:96, :128]
    limit = 0.004 if scheme == "Q5_1" else 1e-7  # the one of these that has no exact format
    np.testing.assert_allclose(found, expected, atol=limit * np.abs(expected).max(), rtol=0)


def test_a_fused_matrix_takes_the_finest_format_of_its_parts() -> None:
    stored = stored_as("Q4_0")
    stored["layers.0.v"] = stored_as("Q8_0")["layers.0.v"]
    stored["layers.1.up"] = stored_as("Q4_1")["layers.1.up"]

    weights = load(WIDE, DictSource(stored), "auto")

    matrices = weights.layout.matrices
    assert matrices["layers.0.qkv"].format is MatrixFormat.GROUP8
    assert matrices["layers.1.gate_up"].format is MatrixFormat.GROUP4MIN
    assert matrices["layers.1.qkv"].format is MatrixFormat.GROUP4
    expected = stored["layers.0.q"].to_float32()
    np.testing.assert_array_equal(values(weights, "layers.0.qkv")[:96, :96], expected)


def test_types_that_the_packer_does_not_read_are_decoded_some_rows_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr("kernels.cpu.weights._DECODED_VALUES", 32 * 128)
    stored = stored_as("Q5_1")

    weights = load(WIDE, DictSource(stored), "none")

    expected = rounded(stored["lm_head"].to_float32())
    np.testing.assert_array_equal(values(weights, "head")[:70, :96], expected)


def test_every_weight_is_asked_for_once_and_counted() -> None:
    source = source_of(random_tensors(SPEC))
    seen: list[tuple[int, int]] = []

    load(SPEC, source, on_progress=lambda done, total: seen.append((done, total)))

    assert sorted(source.asked) == sorted(SPEC.weight_shapes())
    assert seen == sorted(seen)
    assert seen[-1] == (source.total_bytes, source.total_bytes)


def test_the_plan_reads_nothing_and_is_what_is_taken() -> None:
    source = source_of(random_tensors(SPEC))

    layout = plan(source, "int4")

    assert source.asked == []
    assert layout == load(SPEC, source, "int4").layout


@pytest.mark.parametrize("name", ["layers.1.k", "layers.0.up_bias", "final_norm", "embed"])
@pytest.mark.parametrize("weights", ["none", "int8", "int4"])
def test_a_value_that_is_not_finite_is_refused_by_name(name: str, weights: str) -> None:
    tensors = random_tensors(SPEC)
    tensors[name].reshape(-1)[5] = np.nan

    with pytest.raises(ValueError, match=f"weight {name} has values that are not finite"):
        load(SPEC, source_of(tensors), weights)


@pytest.mark.parametrize("name", ["layers.1.o", "layers.0.q_bias", "layers.0.attn_norm"])
def test_a_wrong_shape_is_refused_by_name(name: str) -> None:
    tensors = random_tensors(SPEC)
    tensors[name] = tensors[name][:-1]

    with pytest.raises(ValueError, match=f"weight {name} has shape"):
        load(SPEC, source_of(tensors))


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="weights cannot be 'int3'"):
        plan(source_of(random_tensors(SPEC)), "int3")
