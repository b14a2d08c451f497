"""Reads a call that is one JSON object, as three of the formats write it in some form.

{"name": "next_bus", "arguments": {"stop_name": "Mitte"}}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from router_svc.parsing.json_reading import is_sound, read_json, read_json_string, whole_json
from router_svc.parsing.reader import SPACE

if TYPE_CHECKING:
    from collections.abc import Collection

    from router_svc.parsing.answer import Call
    from router_svc.parsing.reader import Reader, Reading

_ARGUMENTS = ("arguments", "parameters")


def read_call_object(
    reader: Reader, call: Call, *, keys: Collection[str] | None = None
) -> Reading[bool]:
    """Reads what follows a call's `{`, up to its `}`. False where it is broken or the text ends.

    Other keys than name and arguments are read over; if `keys` are given and another comes before
    the name, this is no call. Of a key that comes twice the first counts.
    """
    named = argued = False
    yield from reader.spaces()
    if (yield from reader.literal("}")):
        return True
    while True:
        key = yield from _read_string(reader)
        if key is None or (not named and keys is not None and key not in keys):
            return False
        yield from reader.spaces()
        if not (yield from reader.literal(":")):
            return False
        yield from reader.spaces()
        if key == "name" and not named:
            name = yield from _read_string(reader)
            if name is None:
                return False
            named = True
            call.name(name)
        elif key in _ARGUMENTS and not argued:
            argued = True
            if not (yield from read_arguments(reader, call)):
                return False
        elif not (yield from read_json(reader, _ignore)):
            return False
        yield from reader.spaces()
        if (yield from reader.literal("}")):
            if not argued:
                call.arguments("{}")
            return True
        if not (yield from reader.literal(",")):
            return False
        yield from reader.spaces()


def read_arguments(reader: Reader, call: Call) -> Reading[bool]:
    """Reads the JSON value of a call's arguments. False where it is broken or the text ends.

    An object is passed on as it comes. Arguments that are a string which holds an object, as some
    models write them, are that object; null is the empty object; any other value is itself.
    """
    if (yield from reader.peek()) == "{":
        return (yield from read_json(reader, call.arguments))
    pieces: list[str] = []
    complete = yield from read_json(reader, pieces.append)
    text = "".join(pieces)
    call.arguments(_as_object(text) if complete else text)
    return complete


def _as_object(text: str) -> str:
    if text == "null":
        return "{}"
    if not text.startswith('"'):
        return text
    held = whole_json(json.loads(text).strip(SPACE))
    return held if held is not None and held.startswith("{") and is_sound(held) else text


def _read_string(reader: Reader) -> Reading[str | None]:
    if (yield from reader.peek()) != '"':
        return None
    pieces: list[str] = []
    if not (yield from read_json_string(reader, pieces.append)):
        return None
    text = json.loads("".join(pieces))
    return text if isinstance(text, str) else None


def _ignore(_text: str) -> None:
    """For values that nobody needs."""
