"""Tells reasoning from the answer that follows it.

    <think>\\nThe user wants…\\n</think>\\n\\nHello!
           └ Reasoning ────┘            └ goes to the parser of the rest

Reasoning is what the text begins with, after white space, or what the prompt has opened already; a
tag further on is ordinary text. White space directly inside and after the tags is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.parsing.answer import Parts, Trigger
from router_svc.parsing.parts import Reasoning
from router_svc.parsing.reader import SPACE, Reader, ReadingParser

if TYPE_CHECKING:
    from router_svc.parsing.parts import OutputParser, Part
    from router_svc.parsing.reader import Reading


class ReasoningParser:
    """Reasoning up to a closing tag, then what `rest` makes of the remaining text.

    `opened` says that the prompt ends with the opening tag. Without a closing tag all of the text
    is reasoning, as that is what the model had not finished.
    """

    def __init__(self, opening: str, closing: str, rest: OutputParser, *, opened: bool) -> None:
        self._parts = Parts()
        self._reader = Reader()
        self._rest = rest
        self._to_rest = False
        self._head = ReadingParser(
            self._reader, self._parts, self._read(opening, closing, opened=opened)
        )

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain now."""
        if self._to_rest:
            return self._rest.feed(text)
        return self._head.feed(text) + self._hand_over()

    def finish(self) -> list[Part]:
        """What was held back."""
        parts = [] if self._to_rest else self._head.finish() + self._hand_over()
        return parts + self._rest.finish()

    def _hand_over(self) -> list[Part]:
        if not self._to_rest:
            return []
        reader = self._reader
        remaining = reader.take() + reader.text[reader.pos :]
        reader.text, reader.pos = "", 0
        return self._rest.feed(remaining) if remaining else []

    def _read(self, opening: str, closing: str, *, opened: bool) -> Reading[None]:
        reader = self._reader
        reader.mark()
        if not opened:
            yield from reader.spaces()
            if not (yield from reader.literal(opening)):
                self._to_rest = True  # with the white space, which is marked
                return
        else:
            yield from reader.spaces()
            # Some models write the tag again that the prompt has opened.
            yield from reader.literal(opening)
        reader.take()
        yield from reader.spaces()
        yield from self._read_reasoning(closing)
        yield from reader.spaces()
        self._to_rest = True

    def _read_reasoning(self, closing: str) -> Reading[None]:
        """Passes reasoning on, less the white space at its end, and reads the closing tag."""
        reader, trigger = self._reader, Trigger(closing)
        spaces: list[str] = []
        while True:
            begin, end = trigger.find(reader.text, reader.pos)
            if end == begin and reader.ended:
                begin = end = len(reader.text)
            text = reader.text[reader.pos : begin]
            reader.pos = end
            body = text.rstrip(SPACE)
            if body:
                self._parts.add(Reasoning("".join([*spaces, body])))
                spaces = []
            spaces.append(text[len(body) :])
            if end > begin or reader.ended:
                return
            yield
