"""What is compared: one server for each precision of weights and of the KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_OUTPUT_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Row:
    """A server: its model and the flags that set its precision."""

    weights: str
    kv_cache: str
    model: Path
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """For selecting it and for messages: weights/kv, such as int8/bf16."""
        return f"{self.weights}/{self.kv_cache}"


_KV_CACHE_DTYPES = {"bf16": "auto", "int8": "int8"}


def all_rows(checkpoint: Path, gguf: Path) -> list[Row]:
    """Every combination, the baseline (bf16 throughout) first.

    bf16, int8 and int4 are made from the checkpoint at load time; the GGUF runs as it is.
    """
    weights = {
        "bf16": (checkpoint, "none"),
        "int8": (checkpoint, "int8"),
        "int4": (checkpoint, "int4"),
        "GGUF": (gguf, "auto"),
    }
    return [
        Row(
            name,
            kv_cache,
            model,
            ("--dtype", "bfloat16", "--quantization", quantization, "--kv-cache-dtype", dtype),
        )
        for name, (model, quantization) in weights.items()
        for kv_cache, dtype in _KV_CACHE_DTYPES.items()
    ]
