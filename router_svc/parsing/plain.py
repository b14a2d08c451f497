"""The parser of answers in which nothing is told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.parsing.parts import Content

if TYPE_CHECKING:
    from router_svc.parsing.parts import Part


class PlainParser:
    """All text is content, as it comes."""

    __slots__ = ()

    def feed(self, text: str) -> list[Part]:
        """The text."""
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        """Nothing: no text is ever held back."""
        return []
