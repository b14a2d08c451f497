"""What encoders compute, in the router's own terms; no protos."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router_svc.tracing.call import Call


class EncoderTask(Enum):
    """What an encoder computes of an input."""

    EMBED = "embedding"
    SCORE = "score"


class EncoderInput(NamedTuple):
    """One input, special tokens included. 0 tokens in the first segment: all are."""

    token_ids: Sequence[int]
    first_segment_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EncoderRequest:
    """What is to be computed, and for whom."""

    task: EncoderTask
    request_id: str
    priority: int = 0
    tenant: str = ""
    traceparent: str = ""
    timeout: float | None = None  # seconds
    call: Call | None = field(default=None, repr=False, compare=False)  # of which it is a part
