"""Bytes of weights that a decode step reads, from a checkpoint's shapes."""

from __future__ import annotations

from pathlib import Path

import orjson

# Bytes per weight and per row of a matrix: int8 has a float32 scale for each row, int4 a float16
# scale for each group. The output layer of an int4 model is int8.
_GROUP = 32
_BYTES = {"bf16": (2.0, 0.0), "int8": (1.0, 4.0), "int4": (0.5 + 2 / _GROUP, 0.0)}


def step_weight_bytes(model_dir: Path, precision: str) -> float:
    """All layers' matrices and the output layer, once; of the embedding only rows are read."""
    config = orjson.loads((model_dir / "config.json").read_bytes())
    hidden, inter = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim
    layer = [(queries, hidden), (keys, hidden), (keys, hidden), (hidden, queries)]
    layer += [(inter, hidden), (inter, hidden), (hidden, inter)]
    per_weight, per_row = _BYTES[precision]
    layers = sum(rows * (cols * per_weight + per_row) for rows, cols in layer)
    head_weight, head_row = _BYTES["int8" if precision == "int4" else precision]
    head = config["vocab_size"] * (hidden * head_weight + head_row)
    return float(config["num_hidden_layers"] * layers + head)
