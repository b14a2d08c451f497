"""Text that a parser reads while it is still coming.

A parser is a generator in straight-line code. Where the text runs out it yields, and goes on with
the next piece:

    text      ░░░░░░░░▓▓▓▓▓▓▓▓▓▓▓│▒▒▒▒▒▒
              read    │marked    pos    what the next `add` keeps: less than a literal's length
                      └ `take` gives it back, should it turn out to be no call

Nothing is read twice but the few characters that may begin a literal, so that time is linear.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from router_svc.parsing.parts import Part

    _T = TypeVar("_T")
    # Yields where it needs more text, returns what it found.
    Reading: TypeAlias = Generator[None, None, _T]

SPACE = " \t\r\n"
_SPACES = re.compile(r"[ \t\r\n]*")


class Reader:
    """The text that is still to be read, and whether more of it will come."""

    __slots__ = ("_mark", "_marked", "ended", "pos", "text")

    def __init__(self) -> None:
        self.text = ""
        self.pos = 0
        self.ended = False
        self._mark: int | None = None
        self._marked: list[str] = []

    def add(self, text: str) -> None:
        """Appends what came, and forgets what was read."""
        if self._mark is not None:
            self._marked.append(self.text[self._mark : self.pos])
            self._mark = 0
        self.text = self.text[self.pos :] + text if self.pos < len(self.text) else text
        self.pos = 0

    def mark(self, before: str = "") -> None:
        """Remembers what is read from here on, after `before`, until `take`."""
        self._marked = [before]
        self._mark = self.pos

    def take(self) -> str:
        """What was read since `mark`, and forgets it."""
        if self._mark is None:
            return ""
        taken = "".join(self._marked) + self.text[self._mark : self.pos]
        self._marked, self._mark = [], None
        return taken

    def peek(self) -> Reading[str]:
        """The next character, unread; empty at the end of the text."""
        while self.pos == len(self.text) and not self.ended:
            yield
        return self.text[self.pos : self.pos + 1]

    def literal(self, literal: str) -> Reading[bool]:
        """Reads `literal` if it is next, else nothing."""
        while not self.text.startswith(literal, self.pos):
            rest = len(self.text) - self.pos
            if self.ended or rest >= len(literal):
                return False
            if not literal.startswith(self.text[self.pos :]):
                return False
            yield
        self.pos += len(literal)
        return True

    def sees(self, literals: Sequence[str]) -> Reading[str]:
        """The first of `literals` that is next, unread; an empty string if none is."""
        longest = max(map(len, literals))
        while True:
            for literal in literals:
                if self.text.startswith(literal, self.pos):
                    return literal
            rest = self.text[self.pos : self.pos + longest]
            if self.ended or not any(literal.startswith(rest) for literal in literals):
                return ""
            yield

    def spaces(self) -> Reading[None]:
        """Reads white space, as much as there is."""
        while True:
            match = _SPACES.match(self.text, self.pos)
            self.pos = match.end() if match else self.pos
            if self.pos < len(self.text) or self.ended:
                return
            yield

    def run(self, characters: re.Pattern[str]) -> Reading[str]:
        """Reads as far as `characters`, a pattern that matches any run of a set, goes."""
        pieces = []
        while True:
            match = characters.match(self.text, self.pos)
            if match:
                pieces.append(match.group())
                self.pos = match.end()
            if self.pos < len(self.text) or self.ended:
                return "".join(pieces)
            yield


class Drained(Protocol):
    """Where the parts of a parser collect."""

    def drain(self) -> list[Part]:
        """The parts since the last call, neighbours of a kind joined."""
        ...


class ReadingParser:
    """An OutputParser from a generator that reads from `reader` and leaves its parts in `parts`."""

    __slots__ = ("_parts", "_reader", "_reading")

    def __init__(self, reader: Reader, parts: Drained, reading: Reading[None]) -> None:
        self._reader = reader
        self._parts = parts
        self._reading: Reading[None] | None = reading
        self._advance()

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain now."""
        if text and self._reading is not None:
            self._reader.add(text)
            self._advance()
        return self._parts.drain()

    def finish(self) -> list[Part]:
        """What was held back."""
        self._reader.ended = True
        self._advance()
        return self._parts.drain()

    def _advance(self) -> None:
        if self._reading is not None:
            try:
                next(self._reading)
            except StopIteration:
                self._reading = None
