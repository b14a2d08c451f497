"""Whether anything finite can satisfy a JSON schema whose references lead back to itself.

llguidance takes a schema that requires itself without end, and an answer to it would never end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_ROUNDS = 64  # references in such disorder that these do not settle them count as endless
_SUBSCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_SUBSCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SUBSCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")


def has_finite_instance(schema: dict[str, Any]) -> bool:
    """Whether a schema has a finite instance, as far as its references decide that."""
    return _Finite(schema).holds


def _subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every schema within a schema, itself first."""
    stack = [schema]
    while stack:
        part = stack.pop()
        yield part
        children = [part.get(key) for key in _SUBSCHEMAS]
        for key in _SUBSCHEMA_LISTS:
            if isinstance(many := part.get(key), list):
                children += many
        for key in _SUBSCHEMA_MAPS:
            if isinstance(named := part.get(key), dict):
                children += named.values()
        stack += [child for child in children if isinstance(child, dict)]


class _Finite:
    """The least fixed point: a schema that needs itself has none until another way is found."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._finite: set[int] = set()
        unknown = list(_subschemas(root))
        for _ in range(_MAX_ROUNDS):
            before = len(unknown)
            # Each round the other way, as chains of references may run either way.
            unknown = [part for part in reversed(unknown) if not self._learn(part)]
            if len(unknown) == before:
                return

    @property
    def holds(self) -> bool:
        return id(self._root) in self._finite

    def _learn(self, part: dict[str, Any]) -> bool:
        if self._holds_now(part):
            self._finite.add(id(part))
            return True
        return False

    def _known(self, part: Any) -> bool:
        return not isinstance(part, dict) or id(part) in self._finite

    def _holds_now(self, part: dict[str, Any]) -> bool:
        reference = part.get("$ref")
        if isinstance(reference, str) and not self._known(self._target(reference)):
            return False
        for key in ("anyOf", "oneOf"):
            if isinstance(many := part.get(key), list) and not any(map(self._known, many)):
                return False
        if isinstance(all_of := part.get("allOf"), list) and not all(map(self._known, all_of)):
            return False
        types = part.get("type")
        if types == "object":
            properties = part.get("properties")
            named = properties if isinstance(properties, dict) else {}
            required = part.get("required")
            names = required if isinstance(required, list) else []
            return all(self._known(named.get(name)) for name in names if isinstance(name, str))
        if types == "array" and part.get("minItems"):
            return self._known(part.get("items"))
        return True

    def _target(self, reference: str) -> Any:
        target: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict):
                target = target.get(name)
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                return None
        return target
