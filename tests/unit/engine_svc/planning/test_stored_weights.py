"""The operator is told how a quantised checkpoint's matrices are held."""

from __future__ import annotations

import pytest

from engine_svc.loader.open_model import open_model
from engine_svc.planning.stored_weights import kept_notice
from kernels.backend import Precision
from tests.support import quantized_checkpoints as written
from tests.support.quantized_checkpoints import quantize_checkpoint
from tests.support.tiny_models import make_tiny


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return make_tiny("llama", tmp_path_factory.mktemp("dense") / "model", num_hidden_layers=1)


@pytest.fixture(scope="module")
def opened(dense, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "awq"
    quantize_checkpoint(dense, path, written.awq(ignored=("o_proj",)))
    return open_model(path)


@pytest.mark.parametrize(
    ("weights", "backend", "told"),
    [
        ("auto", "cpu", "6 in int4 with a least value, codes as they are; 3 dense"),
        ("none", "cpu", "6 decoded to bfloat16; 3 dense"),
        (
            "int4",
            "cpu",
            "6 decoded and rounded to int4; 2 dense and rounded to int8; "
            "1 dense and rounded to int4",
        ),
        ("auto", "reference", "6 decoded to bfloat16; 3 dense"),
        # Its 96 columns are no whole units of 64.
        ("auto", "cuda", "5 in 4 bits, codes as they are; 3 dense; 1 decoded to bfloat16"),
    ],
)
def test_matrices_are_counted_by_how_they_are_held(weights, backend, told, opened):
    notice = kept_notice(opened, Precision("bfloat16", weights, "auto"), backend)

    assert notice == f"matrices quantised by awq are held so: {told}"


@pytest.mark.parametrize(
    ("layout", "weights", "multiplies_fp8", "told"),
    [
        (
            written.fp8(),
            "auto",
            True,
            "7 in fp8, codes as they are, for activations in fp8; 2 dense",
        ),
        (
            written.compressed_fp8(),
            "auto",
            False,
            "7 in fp8, codes as they are, for activations in bfloat16; 2 dense",
        ),
        (written.fp8(), "none", True, "7 decoded to bfloat16; 2 dense"),
        # The 96 columns of one are no whole blocks.
        (
            written.fp8((32, 64)),
            "auto",
            True,
            "6 in fp8, codes as they are, for activations in fp8; 2 dense; 1 decoded to bfloat16",
        ),
    ],
)
def test_a_gpu_s_matrices_in_fp8_say_what_they_meet(
    layout, weights, multiplies_fp8, told, dense, tmp_path
):
    quantize_checkpoint(dense, tmp_path / "fp8", layout)
    precision = Precision("bfloat16", weights, "auto")

    notice = kept_notice(
        open_model(tmp_path / "fp8"), precision, "cuda", multiplies_fp8=multiplies_fp8
    )

    assert notice.partition(" are held so: ")[2] == told
