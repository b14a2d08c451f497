"""What a tool parser writes into: the parts, the content among them, and the calls.

One rule for white space: what stands directly before a call or after it, up to the end of the text
or the next call, belongs to neither and is dropped. All other text of the answer comes out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from router_svc.parsing.parts import Content, Part, Reasoning, ToolArguments, ToolCallStart
from router_svc.parsing.reader import SPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from router_svc.parsing.reader import Reader, Reading


class Parts:
    """Parts that collect until somebody drains them."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def add(self, part: Part) -> None:
        """Adds a part at the end."""
        self._parts.append(part)

    def drain(self) -> list[Part]:
        """The parts since the last call, neighbours of a kind joined."""
        if len(self._parts) < 2:
            drained, self._parts = self._parts, []
            return drained
        parts, self._parts = self._parts, []
        joined: list[Part] = []
        begin = 0
        for end in range(1, len(parts) + 1):
            if end == len(parts) or not _same_kind(parts[begin], parts[end]):
                joined.append(_join(parts[begin:end]))
                begin = end
        return joined


def _same_kind(left: Part, right: Part) -> bool:
    if isinstance(left, ToolArguments) and isinstance(right, ToolArguments):
        return left.call == right.call
    return type(left) is type(right) and not isinstance(left, ToolCallStart)


def _join(parts: Sequence[Part]) -> Part:
    first = parts[0]
    if len(parts) == 1 or isinstance(first, ToolCallStart):
        return first
    text = "".join([part.text for part in parts if not isinstance(part, ToolCallStart)])
    if isinstance(first, ToolArguments):
        return ToolArguments(first.call, text)
    return Reasoning(text) if isinstance(first, Reasoning) else Content(text)


class Trigger:
    """Where a call may begin: at any of `markers`, or at `opening`, a character that begins a line.

    White space before the character does not count, and after a call a line begins too.
    """

    __slots__ = ("_first", "_longest", "_prefixes", "_shortest", "_whole", "opening")

    def __init__(self, *markers: str, opening: str = "") -> None:
        self.opening = opening
        self._prefixes = frozenset(
            [marker[:length] for marker in markers for length in range(1, len(marker))]
        )
        self._longest = max([len(marker) for marker in markers], default=1)
        texts = [text for text in (*markers, opening) if text]
        self._shortest = min([len(text) for text in texts])
        self._whole = re.compile("|".join([re.escape(text) for text in texts]))
        self._first = re.compile("|".join(sorted({re.escape(text[0]) for text in texts})))

    def find(self, text: str, begin: int) -> tuple[int, int]:
        """Where the first trigger at or after `begin` begins and ends.

        If there is none, where a marker may be beginning, twice; that is the text's end mostly.
        """
        first = self._first.search(text, begin)
        if first is None:
            return len(text), len(text)
        if len(text) - first.start() >= self._shortest:
            whole = self._whole.search(text, first.start())
            if whole is not None:
                return whole.start(), whole.end()
        start = max(first.start(), len(text) - self._longest + 1)
        while start < len(text) and text[start:] not in self._prefixes:
            start += 1
        return start, start


class Prose:
    """The answer's content on its way out. White space waits for what comes after it."""

    __slots__ = ("_after_call", "_line_is_blank", "_parts", "_spaces")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._spaces: list[str] = []
        self._line_is_blank = True
        self._after_call = False

    def add(self, text: str) -> None:
        """Adds content."""
        body = text.rstrip(SPACE)
        if not text:
            return
        if not body:
            self._spaces.append(text)
            self._line_is_blank = self._line_is_blank or "\n" in text
            return
        self._parts.add(Content("".join(self._spaces) + body if self._spaces else body))
        self._spaces = [text[len(body) :]] if len(body) < len(text) else []
        self._after_call = False
        self._line_is_blank = text.rfind("\n") >= len(body)

    def call_begins(self) -> None:
        """Drops the white space before a call."""
        self._spaces = []
        self._after_call = True
        self._line_is_blank = True

    def end(self) -> None:
        """Lets out what waits, unless only white space followed the last call."""
        if self._spaces and not self._after_call:
            self._parts.add(Content("".join(self._spaces)))
        self._spaces = []

    def until(self, reader: Reader, trigger: Trigger) -> Reading[str]:
        """Passes content on up to a trigger, reads that and returns it; `reader` is marked before.

        Returns an empty string where the text ends.
        """
        while True:
            text = reader.text
            begin, end = trigger.find(text, reader.pos)
            if end > begin:
                self._pass(reader, begin)
                found = text[begin:end]
                if found != trigger.opening or self._line_is_blank:
                    reader.mark()
                    reader.pos = end
                    return found
                self._pass(reader, end)
            elif reader.ended:
                self._pass(reader, len(text))
                return ""
            else:
                self._pass(reader, begin)
                yield

    def _pass(self, reader: Reader, end: int) -> None:
        if end > reader.pos:
            self.add(reader.text[reader.pos : end])
            reader.pos = end


class Call:
    """One call while it is read. Its arguments wait until its name is known.

    `fate` says what becomes of it: nothing is known yet, it is sent, it is the call of a function
    that nobody offered and so is content, or it is one more than were allowed and is dropped.
    """

    __slots__ = ("_answer", "_call", "_waiting", "fate")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._call = 0
        self._waiting: list[str] = []
        self.fate: Literal["open", "sent", "unknown", "extra"] = "open"

    def name(self, name: str) -> None:
        """The function's name, which decides the call's fate."""
        self.fate, self._call = self._answer.begin(name)
        for text in self._waiting:
            self.arguments(text)
        self._waiting = []

    def arguments(self, text: str) -> None:
        """More of the arguments' JSON text."""
        if self.fate == "open":
            self._waiting.append(text)
        elif self.fate == "sent" and text:
            self._answer.parts.add(ToolArguments(self._call, text))

    def settle(self) -> None:
        """The call is over, at its end or where it is broken: its text is content or gone."""
        text = self._answer.reader.take()
        if self.fate in ("open", "unknown"):
            self._answer.prose.add(text)


class Answer:
    """Everything a tool parser reads from and writes into, for one choice.

    `functions` are the names that may be called (None: any). Calls after the first are dropped
    unless `parallel`. `parameters` are the JSON schemas' texts of functions by name, for formats
    that write values without saying their types.
    """

    __slots__ = (
        "_functions",
        "_new_id",
        "_num_calls",
        "_parallel",
        "parameters",
        "parts",
        "prose",
        "reader",
    )

    def __init__(
        self,
        reader: Reader,
        functions: Collection[str] | None,
        *,
        parameters: Mapping[str, str],
        parallel: bool,
        new_id: Callable[[], str],
    ) -> None:
        self.reader = reader
        self.parts = Parts()
        self.prose = Prose(self.parts)
        self.parameters = parameters
        self._functions = functions
        self._parallel = parallel
        self._new_id = new_id
        self._num_calls = 0

    def begin(self, name: str) -> tuple[Literal["sent", "unknown", "extra"], int]:
        """Sends the start of a call, if it may be sent: its fate and which call it is."""
        if not name or (self._functions is not None and name not in self._functions):
            return "unknown", 0
        self.prose.call_begins()
        if self._num_calls and not self._parallel:
            return "extra", 0
        self.reader.take()
        call = self._num_calls
        self._num_calls += 1
        self.parts.add(ToolCallStart(call, self._new_id(), name))
        return "sent", call

    def close(self, call: Call, *closings: str) -> Reading[None]:
        """Settles a call, with those of `closings` that follow it, each after white space."""
        if call.fate in ("open", "unknown"):
            for closing in closings:
                yield from self.reader.spaces()
                yield from self.reader.literal(closing)
            call.settle()
            return
        call.settle()
        for closing in closings:
            yield from self.follows(call, closing)
            call.settle()

    def follows(self, call: Call, *literals: str) -> Reading[str]:
        """After a call: reads white space and the first of `literals` that is next.

        What is read is marked, to be settled with the call. If none is next, it is content, and an
        empty string is returned; a literal that the text's end cuts short goes as the call does.
        """
        reader = self.reader
        reader.mark()
        yield from reader.spaces()
        for literal in literals:
            if (yield from reader.literal(literal)):
                return literal
        rest = reader.text[reader.pos :] if reader.ended else ""
        if rest and any(literal.startswith(rest) for literal in literals):
            reader.pos = len(reader.text)
            call.settle()
        else:
            self.prose.add(reader.take())
        return ""
