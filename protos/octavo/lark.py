"""Parts of grammars in Lark, as llguidance compiles it: schemas, strings, regexes, nested grammars.

What llguidance takes and does not enforce is refused here.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import orjson

from octavo.finite_schemas import has_finite_instance

if TYPE_CHECKING:
    from collections.abc import Iterator

# Long chains of rules and references are followed by recursion, which a thread's stack must hold.
MAX_RULES = 2_000
MAX_DEFINITIONS = 2_000

# One blank at most wherever JSON allows any, so that no answer is whitespace without end.
JSON_WHITESPACE = r"[\x20\x0A]"
_JSON_OPTIONS = {"whitespace_pattern": JSON_WHITESPACE}

_RULE = re.compile(r"^[ \t]*[?!]?[A-Za-z_][\w.-]*[^\n:]*::?=?", re.MULTILINE)
# Keywords under which a value is data rather than a schema.
_DATA = frozenset({"const", "enum", "default", "examples"})
# Keywords under which keys are names rather than keywords.
_NAMES = ("/properties", "/patternProperties", "/$defs", "/definitions")


class GrammarError(ValueError):
    """A constraint that cannot be enforced; the message says why, for the one who wrote it."""


def json_rule(schema: Any) -> str:
    """What stands for a JSON schema on the right-hand side of a Lark rule. Raises GrammarError."""
    if not isinstance(schema, dict):
        raise GrammarError("the schema must be a JSON object")
    _check_schema(schema)
    # A schema's own options could relax it.
    return "%json " + orjson.dumps(schema | {"x-guidance": _JSON_OPTIONS}).decode()


def quoted(text: str) -> str:
    """A Lark string that stands for exactly this text, which must not be empty."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def regex_body(text: str) -> str:
    """What stands between the slashes of a Lark terminal that matches all of a regular expression.

    Raises GrammarError for none.
    """
    from llguidance import regex_to_lark

    # The whole output matches, so anchors at the ends say nothing; elsewhere they are refused.
    text, _, _ = without_anchors(text)
    if not text:
        raise GrammarError("must not be empty")
    return regex_to_lark(text, "d")


def nested_rule(grammar: str) -> str:
    """What stands for a grammar of its own, in Lark or GBNF, on the right-hand side of a Lark rule.

    Raises GrammarError.
    """
    lines = [
        line for line in ebnf_rules(grammar).splitlines() if not line.startswith("%llguidance")
    ]
    return "\n".join(["%lark {", *lines, "}"])


def ebnf_rules(text: str) -> str:
    """The rules of a grammar in Lark, or in GBNF, which is translated. Raises GrammarError."""
    if "::=" in text:
        text = _of_gbnf(text)
    if (count := sum(1 for _ in _RULE.finditer(text))) > MAX_RULES:
        raise GrammarError(f"has {count} rules, more than {MAX_RULES}")
    if not text.strip():
        raise GrammarError("must not be empty")
    return text


def _of_gbnf(text: str) -> str:
    from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark

    try:
        return str(any_to_lark(text))
    except (GbnfToLarkError, ValueError, IndexError, AssertionError) as error:
        raise GrammarError(f"is not GBNF: {error}") from error
    except RecursionError as error:
        raise GrammarError("is nested too deeply") from error


def without_anchors(regex: str) -> tuple[str, bool, bool]:
    """A regular expression without ^ at its begin and $ at its end, and whether it had them."""
    text = regex.removeprefix("^")
    ends = text.endswith("$") and (len(text) - len(text[:-1].rstrip("\\"))) % 2 == 1
    return text[:-1] if ends else text, text != regex, ends


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises GrammarError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise GrammarError(f"is not JSON: {error}") from error


def _check_schema(schema: dict[str, Any]) -> None:
    """Refuses what llguidance takes and does not enforce."""
    definitions = 0
    for path, key, value in _keywords(schema):
        if key == "minProperties" and isinstance(value, int) and value > 1:
            required = _schema_at(schema, path).get("required")
            if not isinstance(required, list) or len(set(map(str, required))) < value:
                raise GrammarError(
                    f"at {path}/minProperties: more than 1 cannot be enforced beyond the required "
                    "properties, as other names may come twice"
                )
        if key in ("$defs", "definitions") and isinstance(value, dict):
            definitions += len(value)
    if not has_finite_instance(schema):
        raise GrammarError("nothing finite satisfies it: it requires itself without end")
    if definitions > MAX_DEFINITIONS:
        raise GrammarError(f"has {definitions} definitions, more than {MAX_DEFINITIONS}")


def _schema_at(schema: Any, path: str) -> Any:
    """The part of a schema that a path of `_keywords` leads to."""
    for step in path.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        schema = schema[int(name)] if isinstance(schema, list) else schema[name]
    return schema


def _keywords(schema: Any) -> Iterator[tuple[str, str, Any]]:
    """Every key of every object in a schema: the object's JSON pointer, the key and its value."""
    stack = [("", schema)]
    while stack:
        path, part = stack.pop()
        if isinstance(part, list):
            stack += [(f"{path}/{i}", item) for i, item in enumerate(part)]
        elif isinstance(part, dict):
            for key, value in part.items():
                yield path, key, value
                if key not in _DATA or path.endswith(_NAMES):
                    step = key.replace("~", "~0").replace("/", "~1")
                    stack.append((f"{path}/{step}", value))
