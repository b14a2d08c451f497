"""The parts of an answer, and what tells them apart."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias


class Content(NamedTuple):
    """Text for the user."""

    text: str


class Reasoning(NamedTuple):
    """Text of the model's reasoning."""

    text: str


class ToolCallStart(NamedTuple):
    """A call begins; its arguments follow. `call` counts the answer's calls from 0."""

    call: int
    id: str
    name: str


class ToolArguments(NamedTuple):
    """More of a call's arguments; all fragments of a call, joined, are JSON text."""

    call: int
    text: str


Part: TypeAlias = Content | Reasoning | ToolCallStart | ToolArguments


class OutputParser(Protocol):
    """Reads one choice's text as it comes. Time is linear in the text, however it is cut.

    The parts of a text, neighbours of a kind joined, do not depend on how it was cut either.
    """

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain now."""
        ...

    def finish(self) -> list[Part]:
        """What was held back, as the text has ended, cut short or not."""
        ...
