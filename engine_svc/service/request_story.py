"""What became of a request, gathered while it lives, for the spans that are made when it has ended.

Free of OpenTelemetry: where nothing is traced, there are no stories and nothing of it is loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from engine_svc.scheduling.request import Request

Operation: TypeAlias = Literal["text_completion", "embeddings"]

# https://www.w3.org/TR/trace-context/#traceparent-header, in any version
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def valid_traceparent(given: str) -> str:
    """What a caller gave if it is a traceparent, else "", as if nothing had been given."""
    return given if _TRACEPARENT.fullmatch(given) else ""


@dataclass(slots=True)
class RequestStory:
    """A request's course over all its choices. Instants are of the engine's clock, in seconds."""

    operation: Operation
    request_id: str
    traceparent: str  # of the caller's span, or ""
    arrival: float
    attempt: int = 0
    prepared_in: float = 0.0  # seconds before `arrival`, in which its grammar was compiled
    num_prompt_tokens: int = 0
    num_resumed: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    first_scheduled_at: float | None = None
    first_token_at: float | None = None
    waited_for: str | None = None  # what kept its first choice in the queue longest
    preempted_at: list[float] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)  # of each choice: stop, length, abort …

    def choice_ended(self, request: Request, num_output_tokens: int, ending: str) -> None:
        """Takes in what is known of a choice."""
        self.first_scheduled_at = _earlier(self.first_scheduled_at, request.first_scheduled_at)
        self.first_token_at = _earlier(self.first_token_at, request.first_token_at)
        self.waited_for = self.waited_for or request.waited_for
        self.num_resumed += request.num_resumed
        self.num_output_tokens += num_output_tokens
        self.endings.append(ending)


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
