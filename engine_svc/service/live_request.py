"""What the event loop keeps of a request while it lives."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from octavo.logs import request_fields

if TYPE_CHECKING:
    from engine_svc.scheduling.request import Request, RequestStatus
    from engine_svc.service.embedding import EmbedSubmission
    from engine_svc.service.output_stream import OutputStream
    from engine_svc.service.request_story import RequestStory
    from engine_svc.service.submission import Submission
    from kernels.backend import Float32s


request_log = logging.getLogger("octavo.engine.requests")


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
    story: RequestStory | None = None  # where it is traced

    def has(self, status: RequestStatus) -> bool:
        """Whether one of its choices has this status."""
        return any(choice.request.status is status for choice in self.choices.values())

    def remove(self, choice: int) -> None:
        """One of its choices has ended; with the last, it lets its adapter go."""
        del self.choices[choice]
        if not self.choices and self.submission.adapter is not None:
            self.submission.adapter.let_go(self)


@dataclass(slots=True, eq=False)
class Choice:
    """One choice of a live request."""

    live: LiveRequest
    request: Request
    num_output_tokens: int  # as told to the client; the engine may be ahead of a cancel
    last_token_at: float | None = None


def log_end(choice: Choice, outcome: str) -> None:
    """One line for a choice that has ended."""
    request = choice.request
    request_log.info(
        "request_id=%s choice=%d outcome=%s prompt_tokens=%d cached_tokens=%d completion_tokens=%d",
        request.request_id,
        request.choice,
        outcome,
        request.num_prompt_tokens,
        request.num_cached_tokens,
        choice.num_output_tokens,
        extra=request_fields(request.request_id, choice.live.submission.traceparent),
    )
