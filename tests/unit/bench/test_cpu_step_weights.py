"""Bytes of weights per decode step."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.bench.cpu.weights import step_weight_bytes

CONFIG = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 1000,
}
# q, k and v, o, gate and up, down; and the output layer.
LAYER_ROWS = 64 + 2 * 32 + 64 + 2 * 128 + 64
LAYER_WEIGHTS = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 128
HEAD_WEIGHTS = 1000 * 64


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_bytes(orjson.dumps(CONFIG))
    return tmp_path


def test_bfloat16_is_two_bytes_a_weight(model_dir: Path) -> None:
    assert step_weight_bytes(model_dir, "bf16") == 2 * (3 * LAYER_WEIGHTS + HEAD_WEIGHTS)


def test_int8_adds_a_scale_for_each_row(model_dir: Path) -> None:
    weights, rows = 3 * LAYER_WEIGHTS + HEAD_WEIGHTS, 3 * LAYER_ROWS + 1000

    assert step_weight_bytes(model_dir, "int8") == weights + 4 * rows


def test_int4_has_scales_by_group_and_an_int8_head(model_dir: Path) -> None:
    layers, head = 3 * LAYER_WEIGHTS * (0.5 + 2 / 32), HEAD_WEIGHTS + 4 * 1000

    assert step_weight_bytes(model_dir, "int4") == layers + head
