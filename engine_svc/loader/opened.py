"""What is known of a model once its files are checked and before its weights are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernels.backend import WeightSource
    from kernels.spec import DecoderSpec


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model that is ready to be loaded by a back end."""

    spec: DecoderSpec
    source: WeightSource
    family: str
    format: str  # for people, for example "safetensors, 2 files, bfloat16" or "GGUF, Q4_1"
    dtype: str  # float32, bfloat16 or float16: what the weights have, or are decoded to
    eos_token_ids: frozenset[int]
    bos_token_id: int | None
    default_sampling: Mapping[str, float]  # those that the model's author set, by request field
    max_position: int  # tokens; a longer context is not to be served
    notices: tuple[str, ...]  # for the operator, at start-up
    tokenizer_sha256: str
    weights_version: str
    num_parameters: int
    file_bytes: int
    quantization: str | None = None  # the method of a quantised Hugging Face checkpoint
