"""Where in a JSON schema the fault is that llguidance complains of without saying so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_TRIES = 200  # about a millisecond each
_SUBSCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames")
_SUBSCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SUBSCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def fault_in_schema(schema: Any, message: str, reason: Callable[[str], str]) -> str | None:
    """JSON pointer of a part that has the fault by itself, none of its own parts having it.

    `message` is llguidance's for the whole; `reason` makes of it what two of them can be compared
    by. None if no part has the same.
    """
    from llguidance import LLMatcher

    if not isinstance(schema, dict):
        return None
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    why = reason(message)
    parts = sorted(_parts(schema), key=lambda part: -part[0].count("/"))
    for path, part in parts[:_MAX_TRIES]:
        text = orjson.dumps(definitions | part).decode()
        if reason(LLMatcher.validate_grammar(f"start: %json {text}")) == why:
            return path
    return None


def _parts(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema, itself among them, by its JSON pointer."""
    stack = [("", schema)]
    while stack:
        path, part = stack.pop()
        yield path, part
        children = [(key, part.get(key)) for key in _SUBSCHEMAS]
        for key in _SUBSCHEMA_LISTS:
            if isinstance(many := part.get(key), list):
                children += [(f"{key}/{i}", child) for i, child in enumerate(many)]
        for key in _SUBSCHEMA_MAPS:
            if isinstance(named := part.get(key), dict):
                children += [(f"{key}/{_escaped(name)}", child) for name, child in named.items()]
        stack += [(f"{path}/{key}", child) for key, child in children if isinstance(child, dict)]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
