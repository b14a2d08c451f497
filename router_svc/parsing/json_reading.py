"""Finds the end of a JSON value while its text comes, and passes the text on as it comes.

A pushdown automaton for RFC 8259: one step a character, or one a run inside strings, and a stack of
the brackets that are open instead of recursion. Two things that models write inside strings and
JSON forbids are repaired, so that what is passed on can be decoded: control characters as they are
(a line break, mostly) become escapes, and a backslash that escapes nothing is doubled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from router_svc.parsing.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from router_svc.parsing.reader import Reading

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
_WORDS = {"t": "true", "f": "false", "n": "null"}
_CLOSING = {"{": "}", "[": "]"}

_DIGITS = "0123456789"
_NUMBER: dict[str, dict[str, str]] = {
    "": {"-": "minus", "0": "zero", **dict.fromkeys("123456789", "whole")},
    "minus": {"0": "zero", **dict.fromkeys("123456789", "whole")},
    "zero": {".": "point", "e": "e", "E": "e"},
    "whole": {".": "point", "e": "e", "E": "e", **dict.fromkeys(_DIGITS, "whole")},
    "point": dict.fromkeys(_DIGITS, "fraction"),
    "fraction": {"e": "e", "E": "e", **dict.fromkeys(_DIGITS, "fraction")},
    "e": {"+": "sign", "-": "sign", **dict.fromkeys(_DIGITS, "exponent")},
    "sign": dict.fromkeys(_DIGITS, "exponent"),
    "exponent": dict.fromkeys(_DIGITS, "exponent"),
}
_WHOLE_NUMBERS = frozenset(("zero", "whole", "fraction", "exponent"))


def is_json_number(text: str) -> bool:
    """Whether the whole of `text` is a number as JSON writes it."""
    state = ""
    for character in text:
        following = _NUMBER[state].get(character)
        if following is None:
            return False
        state = following
    return state in _WHOLE_NUMBERS


def escape_control(character: str) -> str:
    """The JSON escape of a control character."""
    return _ESCAPED.get(character) or f"\\u{ord(character):04x}"


def read_json(reader: Reader, emit: Callable[[str], object]) -> Reading[bool]:
    """Reads one JSON value and hands its text to `emit` in pieces; no white space around it.

    False at the first character that cannot follow, which stays unread, and where the text ends.
    """
    open_brackets: list[str] = []
    expected = "value"
    while True:
        if expected == ",":
            if not open_brackets:
                return True
            yield from _pass_spaces(reader, emit)
        elif open_brackets:
            yield from _pass_spaces(reader, emit)
        character = yield from reader.peek()
        if not character:
            return False
        if expected == "value" or (expected == "value or ]" and character != "]"):
            if character in _CLOSING:
                open_brackets.append(_CLOSING[character])
                expected = "key or }" if character == "{" else "value or ]"
                _pass_one(reader, emit)
                continue
            if not (yield from _read_scalar(reader, emit, character)):
                return False
            expected = ","
        elif character == '"' and expected in ("key", "key or }"):
            if not (yield from read_json_string(reader, emit)):
                return False
            expected = ":"
        elif character == ":" and expected == ":":
            _pass_one(reader, emit)
            expected = "value"
        elif character == "," and expected == ",":
            _pass_one(reader, emit)
            expected = "key" if open_brackets[-1] == "}" else "value"
        elif open_brackets and character == open_brackets[-1] and _may_close(expected):
            _pass_one(reader, emit)
            open_brackets.pop()
            expected = ","
        else:
            return False


def whole_json(text: str) -> str | None:
    """The JSON value that `text` is, repaired as it is while it comes; None if it is no JSON."""
    reader = Reader()
    reader.add(text)
    reader.ended = True
    pieces: list[str] = []
    try:
        next(read_json(reader, pieces.append))
    except StopIteration as end:  # always, as no more text will come
        if end.value and reader.pos == len(text):
            return "".join(pieces)
    return None


def _may_close(expected: str) -> bool:
    return expected in (",", "key or }", "value or ]")


def _pass_one(reader: Reader, emit: Callable[[str], object]) -> None:
    emit(reader.text[reader.pos])
    reader.pos += 1


def _pass_spaces(reader: Reader, emit: Callable[[str], object]) -> Reading[None]:
    while True:
        text, pos = reader.text, reader.pos
        while pos < len(text) and text[pos] in " \t\r\n":
            pos += 1
        if pos > reader.pos:
            emit(text[reader.pos : pos])
            reader.pos = pos
        if pos < len(text) or reader.ended:
            return
        yield


def _read_scalar(reader: Reader, emit: Callable[[str], object], character: str) -> Reading[bool]:
    if character == '"':
        return (yield from read_json_string(reader, emit))
    if character in _WORDS:
        for expected in _WORDS[character]:
            if (yield from reader.peek()) != expected:
                return False
            _pass_one(reader, emit)
        return True
    state = ""
    while True:
        text, pos = reader.text, reader.pos
        after: str | None = state
        while pos < len(text) and (after := _NUMBER[state].get(text[pos])) is not None:
            state = after
            pos += 1
        if pos > reader.pos:
            emit(text[reader.pos : pos])
            reader.pos = pos
        if pos < len(text) or reader.ended:
            return state in _WHOLE_NUMBERS
        yield


def read_json_string(reader: Reader, emit: Callable[[str], object]) -> Reading[bool]:
    """Reads a string, which is known to begin here, and hands its text to `emit`, quotes and all.

    False where the text ends before the string does.
    """
    _pass_one(reader, emit)
    while True:
        match = _PLAIN.match(reader.text, reader.pos)
        if match and match.end() > reader.pos:
            emit(match.group())
            reader.pos = match.end()
        character = yield from reader.peek()
        if not character:
            return False
        if character == '"':
            _pass_one(reader, emit)
            return True
        if character == "\\":
            yield from _pass_escape(reader, emit)
        elif character < " ":
            emit(escape_control(character))
            reader.pos += 1


def _pass_escape(reader: Reader, emit: Callable[[str], object]) -> Reading[None]:
    reader.pos += 1
    character = yield from reader.peek()
    if character and character in '"\\/bfnrt':
        emit("\\" + character)
        reader.pos += 1
        return
    if character != "u":
        emit("\\\\" if character else "\\")
        return
    reader.pos += 1
    digits = ""
    while len(digits) < 4:
        digit = yield from reader.peek()
        if digit not in _HEX:
            break
        digits += digit
        reader.pos += 1
    whole = len(digits) == 4 or (reader.ended and reader.pos == len(reader.text))
    emit(("\\u" if whole else "\\\\u") + digits)


def is_sound(text: str) -> bool:
    """Whether a text can go on to a client: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
