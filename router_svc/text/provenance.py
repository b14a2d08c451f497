"""Tells control tokens that a template wrote from their look-alikes in what users wrote.

A template mixes both into one string. Before, a mark that nobody can guess is put inside every
literal in a user's string; afterwards a literal without a mark is the template's, and the marks are
removed.

    content     "a <|im_end|> b"  →  "a <7302…|im_end|> b"
    rendered    "<|im_start|>user\\na <7302…|im_end|> b<|im_end|>"
    prompt      "<|im_start|>user\\na <|im_end|> b<|im_end|>"     control tokens: first and last

A literal could also be split over two strings that the template joins ("<|im_" and "end|>"). So a
string that ends as a literal begins, or begins as one ends, gets a mark there as well. Only a
template that wraps a value on both sides ("<|{{ role }}|>") makes a control token of it: it means
to.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from router_svc.text.template_errors import TemplateFailedError

if TYPE_CHECKING:
    from router_svc.text.tokenizer import Span, Tokenizer

# Digits survive a template's trimming, escaping and change of case.
_NUM_DIGITS = 32
_MAX_DEPTH = 100


class LiteralEdges:
    """How control tokens' literals begin and end, for the strings that could complete one."""

    def __init__(self, literals: tuple[str, ...]) -> None:
        self._begins = {text[:cut] for text in literals for cut in range(1, len(text))}
        self._ends = {text[cut:] for text in literals for cut in range(1, len(text))}
        self._longest = max((len(text) for text in literals), default=0)

    def begins_one(self, text: str) -> bool:
        """Whether an end of `text` is the beginning of a literal."""
        return any(text[-length:] in self._begins for length in range(1, self._longest))

    def ends_one(self, text: str) -> bool:
        """Whether a beginning of `text` is the end of a literal."""
        return any(text[:length] in self._ends for length in range(1, self._longest))


class Marks:
    """The marks of one rendering."""

    def __init__(self, tokenizer: Tokenizer, edges: LiteralEdges) -> None:
        self._tokenizer = tokenizer
        self._edges = edges
        self._mark = new_mark()

    def mark(self, text: str) -> str:
        """`text` with a mark in every literal of a control token."""
        marked: list[str] = []
        at = 0
        for start, _ in self._tokenizer.find_special(text):
            marked.append(text[at : start + 1])
            at = start + 1
        marked.append(text[at:])
        return self._mark.join(marked)

    def mark_value(self, value: Any, depth: int = 0) -> Any:
        """A copy of a JSON value whose strings, keys too, are marked inside and at their edges.

        Raises TemplateFailedError for a value that is nested too deeply.
        """
        if depth > _MAX_DEPTH:
            raise TemplateFailedError(f"values may be nested at most {_MAX_DEPTH} deep")
        if isinstance(value, str):
            return self._mark_edges(self.mark(value))
        if isinstance(value, dict):
            return {
                self.mark_value(key): self.mark_value(item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.mark_value(item, depth + 1) for item in value]
        return value

    def remove(self, text: str) -> str:
        """`text` without marks."""
        return text.replace(self._mark, "")

    def resolve(self, rendered: str) -> tuple[str, tuple[Span, ...]]:
        """The rendered text without marks, and where the template's control tokens stand in it."""
        parts: list[str] = []
        spans: list[Span] = []
        at = length = 0
        for start, end in self._tokenizer.find_special(rendered):
            before = self.remove(rendered[at:start])
            parts += before, rendered[start:end]
            length += len(before)
            spans.append((length, length + end - start))
            length += end - start
            at = end
        parts.append(self.remove(rendered[at:]))
        return "".join(parts), tuple(spans)

    def _mark_edges(self, text: str) -> str:
        # Templates trim: what counts is the text inside its white space.
        core = text.strip()
        if not core:
            return text
        before, after = text.split(core, 1)
        front = self._mark if self._edges.ends_one(core) else ""
        back = self._mark if self._edges.begins_one(core) else ""
        return f"{before}{front}{core}{back}{after}"


def new_mark() -> str:
    """A string that occurs in no text that was written before."""
    return f"{secrets.randbelow(10**_NUM_DIGITS):0{_NUM_DIGITS}d}"
