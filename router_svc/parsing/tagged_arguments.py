"""Arguments as tags, written and enforced: the values of qwen3_coder.py's format.

    <parameter=stop_name>\\nMitte\\n</parameter>\\n
    └ literal ─────────┘└ one lexeme, or JSON ──┘

A string stands there as it is, so its schema becomes an expression for the text itself, which must
hold nothing that ends a value. A parameter whose schema names a string first is a string (or null);
one that names a string after other types is of those.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson
from octavo.lark import quoted, without_anchors

from router_svc.parsing.qwen3_coder import FUNCTION_END, PARAMETER, PARAMETER_END
from router_svc.parsing.value_types import alternatives, kinds_of, types_of

if TYPE_CHECKING:
    from collections.abc import Callable

_KEY = re.compile(r"[^\n<>]+")
_ANY_KEY = rf"/{PARAMETER}[A-Za-z_][A-Za-z0-9_.\-]*>/"
_ANY_TEXT = "/(?s:.*)/"
_AFTER = quoted(f"\n{PARAMETER_END}\n")
_ENDS = "|".join(
    tag.replace("/", r"\/") for tag in (PARAMETER_END, rf"\n{PARAMETER}", rf"\n{FUNCTION_END}")
)
_NO_END = rf"~/(?s:.*)({_ENDS})(?s:.*)/"

_HEX = "[0-9a-fA-F]"
_DATE = (
    "[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
)
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](\.[0-9]{{1,9}})?(Z|[+-]{_CLOCK})"
_LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_WORD = "[a-zA-Z0-9_+-]{1,32}"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IN_PATH = r"[a-zA-Z0-9._~:@!$&'()*+,;=\/-]*"
# Of each format what is of it beyond doubt: some valid texts are not among these.
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": "P([0-9]{1,9}W|[0-9]{1,9}D(T[0-9]{1,9}H)?|T[0-9]{1,9}[HMS])",
    "email": rf"{_WORD}(\.{_WORD}){{0,1}}@({_LABEL}\.){{1,3}}[a-zA-Z]{{2,24}}",
    "hostname": rf"({_LABEL}\.){{0,3}}{_LABEL}",
    "ipv4": rf"({_BYTE}\.){{3}}{_BYTE}",
    "ipv6": f"({_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}|({_HEX}{{1,4}}:){{1,6}}:{_HEX}{{1,4}}|::1?",
    "uuid": f"{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "uri": rf"[a-z][a-z0-9+.-]{{1,15}}:\/\/{_LABEL}(\.{_LABEL})*(\/{_IN_PATH})?(\?{_IN_PATH})?",
}


def tagged_argument(key: str, value: Any) -> str:
    """An argument as a model writes it: strings as they are, other values as JSON."""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return f"{PARAMETER}{key}>\n{text}\n{PARAMETER_END}\n"


class TaggedArguments:
    """Writes rules for the arguments of functions. Equal values share a rule, one of `rules`."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self._names: dict[str, str] = {}

    def of_function(
        self, schema: dict[str, Any], json_of: Callable[[dict[str, Any]], str], *, strict: bool
    ) -> str:
        """The right-hand side for the properties of `schema`, in their order.

        `json_of` writes the right-hand side for a schema's JSON. Raises ValueError for a name or,
        if `strict`, for a keyword that has no form as tags.
        """
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            more = schema.get("additionalProperties")
            any_value = more if isinstance(more, dict) else {}
            value = self._value(any_value, schema, json_of, strict=strict)
            return f"({self._shared('KEY', _ANY_KEY)} {value})*"
        required = frozenset(schema.get("required") or ())
        tags = []
        for name, own in properties.items():
            if not _KEY.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of a tag")
            try:
                value = self._value(own, schema, json_of, strict=strict)
            except ValueError as error:
                raise ValueError(f"properties/{name}: {error}") from error
            tag = f"{quoted(f'{PARAMETER}{name}>')} {value}"
            tags.append(tag if name in required else f"({tag})?")
        return " ".join(tags) or quoted("")

    def _value(
        self,
        schema: Any,
        root: dict[str, Any],
        json_of: Callable[[dict[str, Any]], str],
        *,
        strict: bool,
    ) -> str:
        kinds = kinds_of(schema, root)
        typed = [kind for kind in kinds if kind != "null"]
        if typed[:1] == ["string"]:
            texts = [_text(parts, strict=strict) for parts in _strings(schema, root, strict=strict)]
            if "null" in kinds:
                texts.append('"null"')
            text = " | ".join(f"({text})" for text in dict.fromkeys(texts))
            return self._shared("VALUE", f'(("\\n" ({text})) & {_NO_END}) {_AFTER}')
        if "string" in kinds:
            schema = {"allOf": [schema], "type": [kind for kind in kinds if kind != "string"]}
        shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
        return self._shared("value", f'"\\n" {json_of(schema | shared)} {_AFTER}')

    def _shared(self, kind: str, right: str) -> str:
        if right not in self._names:
            self._names[right] = name = f"{kind}_{len(self._names)}"
            self.rules.append(f"{name}: {right}")
        return self._names[right]


def _strings(
    schema: Any, root: dict[str, Any], *, strict: bool
) -> list[tuple[dict[str, Any], ...]]:
    try:
        # Where nothing names a type, anything is allowed, and a string is something.
        ways = [
            parts
            for parts in alternatives(schema, root)
            if "string" in (types_of(parts) or ["string"])
        ]
        if not ways:
            raise ValueError("nothing satisfies it")
    except ValueError:
        if strict:
            raise
        return [()]
    return ways


def _text(parts: tuple[dict[str, Any], ...], *, strict: bool) -> str:
    """An expression for strings that satisfy all of some schemas."""
    found = []
    for part in parts:
        try:
            found += _own(part)
        except ValueError:
            if strict:
                raise
    return " & ".join(found) or _ANY_TEXT


def _own(schema: dict[str, Any]) -> list[str]:
    found = []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        texts = [quoted(value) for value in values if isinstance(value, str)]
        if not texts:
            raise ValueError("nothing satisfies it")
        found.append(f"({' | '.join(texts)})")
    if lengths := [schema[key] for key in ("minLength", "maxLength") if key in schema]:
        if not all(type(length) is int and length >= 0 for length in lengths):
            raise ValueError("minLength and maxLength must be whole numbers")
        found.append(f"/(?s:.{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}})/")
    if isinstance(pattern := schema.get("pattern"), str):
        found.append(_pattern(pattern))
    if isinstance(form := schema.get("format"), str):
        if form not in _FORMATS:
            raise ValueError(f"the format {form!r} has no form as a tag")
        found.append(f"/({_FORMATS[form]})/")
    return found


def _pattern(pattern: str) -> str:
    """Where a pattern has anchors and branches, all of the text must match one branch."""
    from llguidance import regex_to_lark

    core, starts, ends = without_anchors(pattern)
    if "|" in core and (starts or ends):
        starts = ends = True
    # Each an expression of its own, so that halves of groups do not make one with what is around.
    own = f"/{regex_to_lark(core, 'd')}/" if core else quoted("")
    before, after = "" if starts else _ANY_TEXT, "" if ends else _ANY_TEXT
    return f"({before} {own} {after})"
