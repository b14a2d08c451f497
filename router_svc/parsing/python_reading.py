"""Turns Python literals into JSON text while they come.

Strings, numbers, True, False, None, lists and dictionaries with string keys; JSON's own literals
too, since models mix them. Nothing is ever evaluated. As in json_reading.py, one step a character
or one a run, and a stack instead of recursion.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from router_svc.parsing.json_reading import escape_control, is_json_number
from router_svc.parsing.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from router_svc.parsing.reader import Reading

_PLAIN = re.compile(r"[^'\"\\\x00-\x1f]*")
_WORD = re.compile(r"[A-Za-z0-9_.+\-]*")
_WORDS = {
    "True": "true",
    "False": "false",
    "None": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}
_CLOSING = {"{": "}", "[": "]"}
_ESCAPES = {
    "n": "\\n",
    "t": "\\t",
    "r": "\\r",
    "b": "\\b",
    "f": "\\f",
    "a": "\\u0007",
    "v": "\\u000b",
    "\\": "\\\\",
    '"': '\\"',
    "'": "'",
    "/": "/",
    "\n": "",
}
_NUM_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = frozenset("0123456789abcdefABCDEF")


def read_python_value(reader: Reader, emit: Callable[[str], object]) -> Reading[str | None]:
    """Reads one literal and hands its JSON text to `emit` in pieces. None when it is complete.

    Where it is broken or the text ends, returns what was read of it and not handed on.
    """
    open_brackets: list[str] = []
    expected = "value"
    comma = ""  # JSON has no comma after the last item, so one waits for the next
    while True:
        if open_brackets:
            yield from reader.spaces()
        character = yield from reader.peek()
        if expected == "," and open_brackets and character == ",":
            reader.pos += 1
            comma = ", "
            expected = "key" if open_brackets[-1] == "}" else "value"
        elif expected == ":" and character == ":":
            reader.pos += 1
            emit(": ")
            expected = "value only"
        elif open_brackets and character == open_brackets[-1] and expected in ("value", "key", ","):
            reader.pos += 1
            emit(open_brackets.pop())
            comma, expected = "", ","
        elif not character or not _may_begin(expected, character):
            return ""
        else:
            emit(comma)
            comma = ""
            if character in _CLOSING:
                reader.pos += 1
                emit(character)
                open_brackets.append(_CLOSING[character])
                expected = "key" if character == "{" else "value"
                continue
            broken = yield from _read_scalar(reader, emit, character)
            if broken is not None:
                return broken
            expected = ":" if expected == "key" else ","
        if not open_brackets:
            return None


def whole_python(text: str) -> str | None:
    """The JSON of the one literal that `text` is; None if it is none."""
    reader = Reader()
    reader.add(text)
    reader.ended = True
    pieces: list[str] = []
    try:
        next(read_python_value(reader, pieces.append))
    except StopIteration as end:  # always, as no more text will come
        if end.value is None and reader.pos == len(text):
            return "".join(pieces)
    return None


def _may_begin(expected: str, character: str) -> bool:
    if expected == "key":
        return character in "'\""
    return expected in ("value", "value only")


def _read_scalar(
    reader: Reader, emit: Callable[[str], object], character: str
) -> Reading[str | None]:
    if character in "'\"":
        return None if (yield from _read_string(reader, emit, character)) else ""
    word = yield from reader.run(_WORD)
    text = _WORDS.get(word) or _as_number(word)
    if text is None:
        return word
    emit(text)
    return None


def _as_number(word: str) -> str | None:
    sign = "-" if word.startswith("-") else ""
    digits = word[1:] if word.startswith(("-", "+")) else word
    digits = digits.replace("_", "")
    if digits.startswith("."):
        digits = "0" + digits
    if digits.endswith("."):
        digits += "0"
    return sign + digits if is_json_number(digits) and not digits.startswith("-") else None


def _read_string(reader: Reader, emit: Callable[[str], object], quote: str) -> Reading[bool]:
    """Reads a string, in single, double or triple quotes. False where the text ends in it."""
    emit('"')
    if (yield from reader.literal(quote * 3)):
        closing = quote * 3
    elif (yield from reader.literal(quote * 2)):
        emit('"')
        return True
    else:
        reader.pos += 1
        closing = quote
    while True:
        match = _PLAIN.match(reader.text, reader.pos)
        if match and match.end() > reader.pos:
            emit(match.group())
            reader.pos = match.end()
        character = yield from reader.peek()
        if not character:
            return False
        if (yield from reader.literal(closing)):
            emit('"')
            return True
        if character == "\\":
            yield from _pass_escape(reader, emit)
            continue
        reader.pos += 1
        if character == '"':
            emit('\\"')
        else:
            emit(escape_control(character) if character < " " else character)


def _pass_escape(reader: Reader, emit: Callable[[str], object]) -> Reading[None]:
    reader.pos += 1
    character = yield from reader.peek()
    if character in _NUM_HEX_DIGITS:
        reader.pos += 1
        digits = ""
        while len(digits) < _NUM_HEX_DIGITS[character]:
            digit = yield from reader.peek()
            if digit not in _HEX:
                emit("\\\\" + character + digits)
                return
            digits += digit
            reader.pos += 1
        code = int(digits, 16)
        emit(json.dumps(chr(code))[1:-1] if code <= 0x10FFFF else "\\\\" + character + digits)
    elif character in _ESCAPES:
        reader.pos += 1
        emit(_ESCAPES[character])
    else:
        emit("\\\\")
