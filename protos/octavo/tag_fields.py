"""Reads the fields of a structural tag's formats; every error says where the fault is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.lark import GrammarError

if TYPE_CHECKING:
    from collections.abc import Callable


def each(fields: dict[str, Any], key: str, path: str) -> list[tuple[str, Any]]:
    """The entries of an array that must have some, each with its path."""
    values = fields.get(key)
    if not isinstance(values, list) or not values:
        raise GrammarError(f"{path}.{key} must be an array with at least one entry")
    return [(f"{path}.{key}[{i}]", value) for i, value in enumerate(values)]


def texts(fields: dict[str, Any], key: str, path: str) -> list[str]:
    """An array of texts, none of them empty. `excludes` may be without any."""
    if fields.get(key) == [] and key == "excludes":
        return []
    found = [as_text(value, at) for at, value in each(fields, key, path)]
    if "" in found:
        raise GrammarError(f"{path}.{key} must not hold an empty text")
    return found


def text(fields: dict[str, Any], key: str, path: str) -> str:
    """A text, which may be empty."""
    return as_text(fields.get(key), f"{path}.{key}")


def as_text(value: Any, path: str) -> str:
    """A value that must be a text."""
    if isinstance(value, dict) and value.get("type") == "token":
        raise GrammarError(f"{path}: the format 'token' is not supported")
    if not isinstance(value, str):
        raise GrammarError(f"{path} must be a text")
    return value


def flag(fields: dict[str, Any], key: str, path: str, *, default: bool = False) -> bool:
    """A boolean."""
    value = fields.get(key, default)
    if not isinstance(value, bool):
        raise GrammarError(f"{path}.{key} must be true or false")
    return value


def count(fields: dict[str, Any], key: str, path: str, most: int) -> int | None:
    """An integer from 0 to `most`; None where there is none."""
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise GrammarError(f"{path}.{key} must be an integer from 0 to {most}")
    return value


def within(path: str, make: Callable[[Any], str], value: Any) -> str:
    """What `make` makes of a value, its errors told with their place."""
    try:
        return make(value)
    except GrammarError as error:
        raise GrammarError(f"{path}: {error}") from error
