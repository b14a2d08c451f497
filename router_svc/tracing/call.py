"""What becomes known of one call while it is served, for its span and for the gen_ai metrics."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from router_svc.tracing.spans import CallSpans


@dataclass(slots=True)
class Call:
    """One call of the public API; whoever learns something writes it here.

    `spans` is None where nothing is traced. Instants are of time.monotonic(), in seconds, 0 is
    never. What was said or answered has no place here: all of this is sent elsewhere.
    """

    operation: str = ""  # gen_ai.operation.name
    spans: CallSpans | None = None
    model: str = ""  # that answers; "" while none was found
    response_id: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    finish_reasons: list[str] = field(default_factory=list)  # of each choice
    started: float = field(default_factory=time.monotonic)
    first_token: float = 0.0
    last_token: float = 0.0

    def phase(self, name: str) -> AbstractContextManager[object]:
        """A span of its own for what runs within."""
        return nullcontext() if self.spans is None else self.spans.phase(name)

    def generated(self, first: float, last: float) -> None:
        """When a prompt's first and last token came, of whichever choice; 0 if none came."""
        if first:
            self.first_token = min(self.first_token or first, first)
            self.last_token = max(self.last_token, last)

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from the call to the first token of any choice."""
        return self.first_token - self.started if self.first_token else None

    @property
    def time_per_output_token(self) -> float | None:
        """Seconds between two tokens of a choice, on average over all that follow a first one."""
        following = self.output_tokens / max(1, len(self.finish_reasons)) - 1
        if not self.first_token or following <= 0:
            return None
        return (self.last_token - self.first_token) / following
