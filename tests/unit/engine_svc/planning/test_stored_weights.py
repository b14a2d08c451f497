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
def opened(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_tiny("llama", root / "dense", num_hidden_layers=1)
    quantize_checkpoint(root / "dense", root / "awq", written.awq(ignored=("o_proj",)))
    return open_model(root / "awq")


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
