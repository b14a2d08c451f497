"""What the event loop keeps of a request while it lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_svc.scheduling.request import Request
    from engine_svc.service.embedding import EmbedSubmission
    from engine_svc.service.output_stream import OutputStream
    from engine_svc.service.submission import Submission
    from kernels.backend import Float32s


@dataclass(slots=True, eq=False)
class LiveRequest:
    """A logical request from its submission to its end."""

    submission: Submission | EmbedSubmission
    stream: OutputStream
    last_event_at: float
    choices: dict[int, Choice] = field(default_factory=dict)  # those that have not ended
    admitted: bool = False
    cached_tokens: int = 0  # of the choice that was scheduled first
    vectors: dict[int, Float32s] = field(default_factory=dict)  # embeddings, by choice


@dataclass(slots=True, eq=False)
class Choice:
    """One choice of a live request."""

    live: LiveRequest
    request: Request
    num_output_tokens: int  # as told to the client; the engine may be ahead of a cancel
    last_token_at: float | None = None
