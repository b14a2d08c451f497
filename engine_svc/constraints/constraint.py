"""What a request asks for, before it is compiled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constraint:
    """What an output must follow; see the engine's Constraint message."""

    kind: str  # json_schema, regex, choice, ebnf or structural_tag
    text: str = ""
    choices: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of its texts."""
        return len(self.text.encode()) + sum(len(choice.encode()) for choice in self.choices)
