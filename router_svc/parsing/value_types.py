"""What a JSON schema says of the type of a value that is written without quotes.

A format that writes `<parameter=n>12</parameter>` says nothing of the value's type; the tool's
schema does. Parser and grammar both ask here, so that what the one lets a model write the other
reads as what was meant.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from router_svc.parsing.json_reading import is_json_number, is_sound, whole_json
from router_svc.parsing.python_reading import whole_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    Schema: TypeAlias = dict[str, Any]

_MAX_ALTERNATIVES = 64
_MAX_STEPS = 512  # references and combinations that are followed for one value
_TYPES = frozenset(("null", "boolean", "integer", "number", "object", "array", "string"))
# What schemas made by hand say that JSON Schema does not.
_ALIASES = {
    "bool": "boolean",
    "dict": "object",
    "double": "number",
    "float": "number",
    "int": "integer",
    "list": "array",
    "long": "integer",
    "str": "string",
}
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.0+)?")
_SPACE = " \t\r\n"
NULLS = ("null", "None")  # as JSON writes it, and as templates in Jinja do


def kinds_of(schema: Any, root: Schema) -> tuple[str, ...]:
    """The types that a value may have, in the schema's order, null first; a string if none is said.

    `root` is what references point into. A schema too entangled to follow says a string, too.
    """
    found: dict[str, None] = {}
    try:
        for parts in alternatives(schema, root):
            found.update(dict.fromkeys(types_of(parts)))
    except ValueError:
        return ("string",)
    if "null" in found:
        found = {"null": None, **found}
    return tuple(found) or ("string",)


def alternatives(schema: Any, root: Schema) -> list[tuple[Schema, ...]]:
    """The ways to satisfy a schema: of each the schemas that hold together.

    {"anyOf": [a, {"$ref": "#/$defs/b"}], …rest} is (rest, a) or (rest, ref, b). Raises ValueError
    for more than 64 ways, or more than 512 steps to find them.
    """
    return _Expansion(root).expand(schema)


def types_of(parts: tuple[Schema, ...]) -> list[str]:
    """The types that all of some schemas allow, in the order of the first that names any."""
    common: list[str] | None = None
    for part in parts:
        types = _own_types(part)
        if types is None:
            continue
        if common is None:
            common = types
        else:
            common = [kind for kind in common if kind in types or _is_whole(kind, types)]
    return common or []


def as_json(text: str, kinds: tuple[str, ...]) -> str:
    """The JSON of a value's text, which is of the first kind that it fits, else a string."""
    for kind in kinds:
        if kind == "string":
            break
        fitting = _as_kind(text.strip(_SPACE), kind)
        if fitting is not None:
            return fitting
    return json.dumps(text, ensure_ascii=False)


def _as_kind(text: str, kind: str) -> str | None:
    match kind:
        case "null":
            return "null" if text in NULLS else None
        case "boolean":
            return text.lower() if text.lower() in ("true", "false") else None
        case "integer":
            return text if _INTEGER.fullmatch(text) else None
        case "number":
            return text if is_json_number(text) else None
    opening = "{" if kind == "object" else "["
    held = whole_json(text)
    if held is not None and held.startswith('"'):  # some models write the value once more as text
        text = json.loads(held).strip(_SPACE)
        held = whole_json(text)
    if held is None:
        held = whole_python(text)
    return held if held is not None and held.startswith(opening) and is_sound(held) else None


class _Expansion:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps = 0

    def expand(self, schema: Any) -> list[tuple[Schema, ...]]:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise ValueError("too many references and combinations")
        if not isinstance(schema, dict):
            return [()]
        found: list[tuple[Schema, ...]] = [(schema,)]
        for part in self._all_of(schema):
            found = _product(found, self.expand(part))
        for key in ("anyOf", "oneOf"):
            branches = schema.get(key)
            if isinstance(branches, list) and branches:
                ways = [way for branch in branches for way in self.expand(branch)]
                found = _product(found, ways)
        return found

    def _all_of(self, schema: Schema) -> Iterator[Any]:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield self._target(reference)
        parts = schema.get("allOf")
        if isinstance(parts, list):
            yield from parts

    def _target(self, reference: str) -> Any:
        target: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        return target


def _product(
    left: list[tuple[Schema, ...]], right: list[tuple[Schema, ...]]
) -> list[tuple[Schema, ...]]:
    if len(left) * len(right) > _MAX_ALTERNATIVES:
        raise ValueError(f"more than {_MAX_ALTERNATIVES} alternatives")
    return [(*a, *b) for a in left for b in right]


def _is_whole(kind: str, types: list[str]) -> bool:
    return kind == "integer" and "number" in types


def _own_types(schema: Schema) -> list[str] | None:
    """What a schema says by itself; None if that is nothing."""
    said = schema.get("type")
    if isinstance(said, str):
        return [_named(said)]
    if isinstance(said, list):
        return list(dict.fromkeys(_named(str(kind)) for kind in said))
    values = schema["enum"] if isinstance(schema.get("enum"), list) else None
    if "const" in schema:
        values = [schema["const"]]
    if values:
        return list(dict.fromkeys(map(_type_of, values)))
    if "properties" in schema or "additionalProperties" in schema:
        return ["object"]
    return ["array"] if "items" in schema else None


def _named(kind: str) -> str:
    kind = kind.strip().lower()
    return kind if kind in _TYPES else _ALIASES.get(kind, "string")


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case dict():
            return "object"
        case list():
            return "array"
    return "string"
