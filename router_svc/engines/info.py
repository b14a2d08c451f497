"""What an engine says of itself: its model and limits once, its load all the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router_svc.generation_types import Adapter


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What a router needs to know of an engine's model. Lengths count tokens."""

    served_names: tuple[str, ...]
    source: str
    max_model_len: int
    vocab_size: int
    max_num_seqs: int  # choices that run at once
    max_n: int
    max_logprobs: int
    ready_unix_seconds: int
    generates: bool = True
    embedding_size: int = 0  # numbers of an embedding; 0 if the model makes none
    num_labels: int = 0  # outputs of the classifier; 0 if the model has none
    instance_id: str = ""  # which process; new at every start
    tokenizer_sha256: str = ""
    weights_version: str = ""
    block_size: int = 16  # tokens of a KV block
    adapters: Mapping[str, Adapter] = field(default_factory=dict)  # that requests may name


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine pushed last, and when it came (time.monotonic())."""

    num_running: int = 0  # choices
    num_waiting: int = 0
    num_uncomputed_tokens: int = 0  # prompt tokens of both, still to be computed
    num_free_blocks: int = 0
    num_blocks: int = 0
    step_seconds: float = 0.0
    received_at: float = 0.0


class EngineMismatchError(Exception):
    """The engine's model is not the one that the router was started with."""
