"""Structural tags: free text in which certain beginnings oblige to a certain form.

    {"type": "structural_tag",
     "triggers":   ["<function="],
     "structures": [{"begin": "<function=add>", "schema": {…}, "end": "</function>"}]}

Text is free until a trigger stands in it. Then one of the structures that begin with the trigger
must follow in full, and the text is free again. The newer form, with a "format", is in
`octavo.tag_formats`.
"""

from __future__ import annotations

from typing import Any

from octavo.lark import GrammarError, json_rule, quoted
from octavo.tag_formats import lark_of_format

MAX_STRUCTURES = 256


def lark_of_tags(value: Any) -> str:
    """The Lark grammar of a structural tag, given as a parsed JSON value. Raises GrammarError."""
    if not isinstance(value, dict):
        raise GrammarError("must be a JSON object")
    if "format" in value:
        _check_keys(value, {"type", "format"})
        return lark_of_format(value["format"])
    _check_keys(value, {"type", "triggers", "structures"})
    triggers = _texts(value.get("triggers"), "triggers")
    structures = value.get("structures")
    if not isinstance(structures, list) or not structures:
        raise GrammarError("structures must be an array with at least one entry")
    if len(structures) > MAX_STRUCTURES:
        raise GrammarError(f"has {len(structures)} structures, more than {MAX_STRUCTURES}")
    rules = [_structure(i, entry, triggers) for i, entry in enumerate(structures)]
    names = " | ".join(f"tag_{i}" for i in range(len(rules)))
    return "\n".join((f"start: ({names})* rest", "rest: TEXT", r"TEXT: /(.|\n)*/", *rules))


def _check_keys(value: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(value.keys() - known):
        raise GrammarError(f"has the unknown key {unknown[0]!r}")
    if value.get("type", "structural_tag") != "structural_tag":
        raise GrammarError('has a type other than "structural_tag"')


def _structure(index: int, entry: Any, triggers: list[str]) -> str:
    path = f"structures[{index}]"
    if not isinstance(entry, dict):
        raise GrammarError(f"{path} must be an object")
    unknown = sorted(entry.keys() - {"begin", "schema", "end"})
    if unknown:
        raise GrammarError(f"{path} has the unknown key {unknown[0]!r}")
    begin, end = (_text(entry.get(key), f"{path}.{key}") for key in ("begin", "end"))
    trigger = next((t for t in triggers if begin.startswith(t)), None)
    if trigger is None:
        raise GrammarError(f"{path}.begin starts with none of the triggers")
    try:
        body = json_rule(entry.get("schema"))
    except GrammarError as error:
        raise GrammarError(f"{path}.schema: {error}") from error
    parts = [begin.removeprefix(trigger), end]
    after, last = (quoted(part) if part else "" for part in parts)
    head = f"tag_{index}_head[lazy]: TEXT {quoted(trigger)}"
    return f"{head}\ntag_{index}: tag_{index}_head {after} {body} {last}"


def _texts(value: Any, path: str) -> list[str]:
    if not isinstance(value, list) or not value:
        raise GrammarError(f"{path} must be an array with at least one text")
    texts = [_text(text, f"{path}[{i}]") for i, text in enumerate(value)]
    if "" in texts:
        raise GrammarError(f"{path} must not hold an empty text")
    return texts


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise GrammarError(f"{path} must be a text")
    return value
