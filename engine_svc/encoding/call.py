"""A call to embed or score: inputs that arrive together, are computed in any step, and are answered
together. Free of torch and grpc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class EncoderInput(NamedTuple):
    """One input. Tokens from `first_segment` on are of the second segment (token type 1)."""

    token_ids: tuple[int, ...]
    first_segment: int


@dataclass(slots=True, eq=False)
class EncoderCall:
    """A call as the loop sees it. Times are in seconds of the engine's clock."""

    key: int
    inputs: tuple[EncoderInput, ...]
    arrival: float
    priority: int = 0  # lower first
    deadline: float | None = None
    num_scheduled: int = 0  # inputs that were taken into a step, from the first on
    first_scheduled_at: float | None = None

    @property
    def num_waiting(self) -> int:
        """Inputs that no step has taken yet."""
        return len(self.inputs) - self.num_scheduled

    @property
    def stage(self) -> str:
        """What a deadline that passes now interrupts."""
        return "queue" if self.first_scheduled_at is None else "prefill"


class ScheduledInput(NamedTuple):
    """An input in a step."""

    call: EncoderCall
    number: int

    @property
    def input(self) -> EncoderInput:
        """What is computed."""
        return self.call.inputs[self.number]
