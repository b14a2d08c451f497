"""The format of Qwen3-Coder and Qwen 3.5: tags in place of JSON, values without quotes.

<tool_call>
<function=next_bus>
<parameter=stop_name>
Mitte
</parameter>
</function>
</tool_call>

A line break on either side of a value belongs to the tags. A value's type is its schema's. Strings
are passed on as they come, other values when they are whole, since only then is it known what
they are. Nothing is escaped, so a value ends only where its end cannot be the value's own text:

    </parameter>       before another tag of the format, or the end of the text
    a line </function> before the call's own end, or the next call, where the tag above is missing
    a line <parameter=NAME>  of a parameter that is still to come, where that is missing as well
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import orjson

from router_svc.parsing.answer import Answer, Call, Trigger
from router_svc.parsing.json_reading import read_json
from router_svc.parsing.reader import Reader
from router_svc.parsing.value_types import NULLS, as_json, kinds_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from router_svc.parsing.reader import Reading

OPENING = "<tool_call>"
CLOSING = "</tool_call>"
FUNCTION = "<function="
FUNCTION_END = "</function>"
PARAMETER = "<parameter="
PARAMETER_END = "</parameter>"
_TRIGGER = Trigger(OPENING, FUNCTION)
_ENDS = Trigger(PARAMETER_END, FUNCTION_END, PARAMETER)
_AFTER_FUNCTION = (CLOSING, OPENING, FUNCTION)
_AFTER_PARAMETER = (PARAMETER, FUNCTION_END, *_AFTER_FUNCTION)
_NAME = re.compile(r"[^\s<>]*")
_KEY = re.compile(r"[^\n<>]*")
_SPACES = re.compile(r"[ \t\r\n]*")
_QUOTES = re.compile(r'\\.?|"', re.DOTALL)


def read_qwen3_coder(answer: Answer) -> Reading[None]:
    """Reads a whole answer. <tool_call> and closing tags that are missing are not missed."""
    reader = answer.reader
    schemas: dict[str, _Parameters] = {}
    while trigger := (yield from answer.prose.until(reader, _TRIGGER)):
        if trigger == OPENING:
            yield from reader.spaces()
            if not (yield from reader.literal(FUNCTION)):
                answer.prose.add(reader.take())
                continue
        call = Call(answer)
        name = yield from reader.run(_NAME)
        closed = False
        if name and (yield from reader.literal(">")):
            call.name(name)
            if name not in schemas:
                schemas[name] = _Parameters(answer.parameters.get(name))
            closed = yield from _read_parameters(answer, call, schemas[name])
        yield from answer.close(call, *((CLOSING,) if closed else ()))
    answer.prose.end()


def _read_parameters(answer: Answer, call: Call, schema: _Parameters) -> Reading[bool]:
    """Reads parameters up to where the call ends. False where one is broken or cut short."""
    reader = answer.reader
    call.arguments("{")
    separator = ""
    given: set[str] = set()
    key: str | None = None  # of the parameter whose value is next
    yield from reader.spaces()
    while key is not None or (yield from reader.literal(PARAMETER)):
        if key is None:
            key = yield from reader.run(_KEY)
            if not (yield from reader.literal(">")):
                if reader.pos < len(reader.text):
                    call.arguments("}")
                if call.fate == "sent":
                    answer.prose.add(PARAMETER + key)
                return False
        given.add(key)
        call.arguments(f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
        separator = ", "
        value = _Value(schema.kinds(key), call.arguments)
        end = yield from _read_value(reader, value, schema, given)
        if end is None:
            value.cut()
            return False
        value.end()
        key = end or None
    if not (yield from reader.literal(FUNCTION_END)):
        is_cut = _drop_a_cut_tag(reader, (FUNCTION_END, PARAMETER))
        if is_cut and not schema.are_satisfied_by(given):
            return False  # so that nobody takes for whole what more was to come of
    call.arguments("}")
    return True


def _read_value(
    reader: Reader, value: _Value, schema: _Parameters, given: set[str]
) -> Reading[str | None]:
    """Reads a value and its end: the key that follows in place of the end, else an empty string.

    None where the text ends before the value does.
    """
    while True:
        begin, end = _ENDS.find(reader.text, reader.pos)
        if end == begin and reader.ended:
            begin = end = len(reader.text)
        value.add(reader.text[reader.pos : begin])
        reader.pos = end
        if end == begin:
            if reader.ended:
                return None
            yield
            continue
        found = reader.text[begin:end]
        if not value.begins_line and (found != PARAMETER_END or value.is_quoting):
            value.add(found)
            continue
        if found == PARAMETER:
            key = yield from reader.run(_KEY)
            if schema.has(key) and key not in given and (yield from reader.literal(">")):
                return key
            value.add(found + key)
            continue
        spaces = yield from reader.run(_SPACES)
        following = _AFTER_PARAMETER if found == PARAMETER_END else _AFTER_FUNCTION
        if (yield from reader.sees(following)) or _drop_a_cut_tag(reader, following):
            return ""
        value.add(found + spaces)


def _drop_a_cut_tag(reader: Reader, tags: tuple[str, ...]) -> bool:
    """Whether nothing follows but, at most, the beginning of one of `tags`, which is read."""
    if not reader.ended or not any(tag.startswith(reader.text[reader.pos :]) for tag in tags):
        return False
    reader.pos = len(reader.text)
    return True


class _Parameters:
    """What the JSON schema of a function says of its parameters."""

    def __init__(self, text: str | None) -> None:
        schema = orjson.loads(text) if text is not None else {}
        self._root: dict[str, Any] = schema if isinstance(schema, dict) else {}
        properties = self._root.get("properties")
        self._properties = properties if isinstance(properties, dict) else {}
        required = self._root.get("required")
        names = required if isinstance(required, list) else []
        self._required = {name for name in names if isinstance(name, str)}
        self._kinds: dict[str, tuple[str, ...]] = {}

    def are_satisfied_by(self, given: set[str]) -> bool:
        """Whether none is missing."""
        return self._required <= given

    def has(self, key: str) -> bool:
        """Whether there is a parameter of this name, as far as is known."""
        return key in self._properties if self._properties else bool(key)

    def kinds(self, key: str) -> tuple[str, ...]:
        """See `kinds_of`."""
        if key not in self._properties:
            return kinds_of(self._root.get("additionalProperties"), self._root)
        if key not in self._kinds:
            self._kinds[key] = kinds_of(self._properties[key], self._root)
        return self._kinds[key]


class _Value:
    """One value on its way to JSON, of which `emit` gets the text."""

    def __init__(self, kinds: tuple[str, ...], emit: Callable[[str], object]) -> None:
        self._kinds = kinds
        self._emit = emit
        self._held: list[str] = []
        self._num_held = 0
        self._is_held = True
        self._may_be_null = kinds[0] == "null"
        self._is_string = kinds[self._may_be_null :][:1] == ("string",)
        self._begun = self._escapes = False
        self._line_break = ""  # the last one waits for what comes after it
        self.begins_line = False  # whether a line break came last
        self.is_quoting = False  # whether inside a string of an object or an array

    def add(self, text: str) -> None:
        """More of the value's text."""
        if not text:
            return
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\n")
            if not text:
                self.begins_line = True
                return
        text = self._line_break + text
        body = text.removesuffix("\n")
        self._line_break = text[len(body) :]
        self.begins_line = self._line_break != ""
        self._pass_on(body)

    def end(self) -> None:
        """The value is whole."""
        self._emit(as_json("".join(self._held), self._kinds) if self._is_held else '"')

    def cut(self) -> None:
        """The text ended: what there is of the value goes on, as a beginning of JSON."""
        self._pass_on(self._line_break)
        if self._is_held:
            text = "".join(self._held)
            self._emit(_begun_json(text) or '"' + _escaped(text))

    def _pass_on(self, text: str) -> None:
        if not text:
            return
        if not self._is_held:
            self._emit(_escaped(text))
            return
        self._held.append(text)
        self._num_held += len(text)
        if self._is_string:
            if not (self._may_be_null and self._num_held <= 4 and self._could_be_null()):
                self._begin_string()
        elif "object" in self._kinds or "array" in self._kinds:
            self._follow_quotes(text)

    def _could_be_null(self) -> bool:
        text = "".join(self._held)
        return any(null.startswith(text) for null in NULLS)

    def _begin_string(self) -> None:
        self._is_held = False
        self._emit('"' + _escaped("".join(self._held)))
        self._held = []

    def _follow_quotes(self, text: str) -> None:
        if self._escapes:
            text, self._escapes = text[1:], False
        for match in _QUOTES.finditer(text):
            if match.group() == '"':
                self.is_quoting = not self.is_quoting
            else:
                self._escapes = len(match.group()) == 1


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _begun_json(text: str) -> str:
    """The text, repaired, if it is a beginning of JSON; else an empty string."""
    reader = Reader()
    reader.add(text)
    reader.ended = True
    pieces: list[str] = []
    for _ in read_json(reader, pieces.append):
        break  # never, as no more text will come
    return "".join(pieces) if reader.pos == len(text) else ""
