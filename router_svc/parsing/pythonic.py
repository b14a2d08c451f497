"""Calls as a list of Python calls, as Llama 4 and some fine-tunes of Llama 3.2 write them.

    [next_bus(stop_name="Mitte"), now()]

The list begins a line; <|python_start|> … <|python_end|> or <|python_tag|> may stand around it. The
arguments go on as JSON text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from router_svc.parsing.answer import Answer, Call, Trigger
from router_svc.parsing.python_reading import read_python_value

if TYPE_CHECKING:
    from router_svc.parsing.reader import Reader, Reading

PYTHON_START = "<|python_start|>"
PYTHON_END = "<|python_end|>"
PYTHON_TAG = "<|python_tag|>"
_TRIGGER = Trigger(PYTHON_START, PYTHON_TAG, opening="[")
_NAME = re.compile(r"[A-Za-z0-9_.:\-]*")
_KEYWORD = re.compile(r"[^\s=,'\"()\[\]{}<]*")


def read_pythonic(answer: Answer) -> Reading[None]:
    """Reads a whole answer."""
    reader = answer.reader
    while trigger := (yield from answer.prose.until(reader, _TRIGGER)):
        if trigger != "[":
            yield from reader.spaces()
            if not (yield from reader.literal("[")):
                answer.prose.add(reader.take())
                continue
        while call := (yield from _read_call(answer)):
            if (yield from answer.follows(call, ",", "]")) != ",":
                call.settle()
                if call.fate != "unknown":
                    yield from answer.close(call, PYTHON_END)
                break
    answer.prose.end()


def _read_call(answer: Answer) -> Reading[Call | None]:
    reader = answer.reader
    call = Call(answer)
    yield from reader.spaces()
    name = yield from reader.run(_NAME)
    if not name or not (yield from reader.literal("(")):
        call.settle()
        return None
    call.name(name)
    broken = yield from _read_arguments(reader, call)
    call.settle()
    if broken is None:
        return call
    if call.fate == "sent":
        answer.prose.add(broken)
    return None


def _read_arguments(reader: Reader, call: Call) -> Reading[str | None]:
    """Reads keyword arguments up to the closing parenthesis. None when they are complete.

    Where they are broken or the text ends, returns what was read of one and not handed on.
    """
    call.arguments("{")
    separator = ""
    while True:
        yield from reader.spaces()
        if (yield from reader.literal(")")):
            break
        keyword = yield from reader.run(_KEYWORD)
        yield from reader.spaces()
        if not keyword or not (yield from reader.literal("=")):
            return keyword
        yield from reader.spaces()
        call.arguments(f"{separator}{json.dumps(keyword, ensure_ascii=False)}: ")
        broken = yield from read_python_value(reader, call.arguments)
        if broken is not None:
            return broken
        yield from reader.spaces()
        separator = ", "
        if not (yield from reader.literal(",")):
            if (yield from reader.literal(")")):
                break
            return ""
    call.arguments("}")
    return None
