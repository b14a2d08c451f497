"""From a constraint, in any of its kinds, to the one notation that llguidance compiles: Lark.

Router and engine both translate with this, the one to check a request, the other to enforce it, so
what the first accepts is what the second means.

    json_schema      start: %json {…}             with at most one blank between two of JSON's marks
    regex            start: /…/
    choice           start: CHOICE                one lexeme
    ebnf             as it is, or translated from GBNF
    structural_tag   see `octavo.structural_tags`

Forced text is left to the model to cut into tokens (`no_forcing`): every cut is allowed, and no
tokeniser need be at hand to find the usual one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from octavo.lark import GrammarError, ebnf_rules, json_rule, parse_json, quoted, regex_body
from octavo.structural_tags import lark_of_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_TEXT_BYTES = 256 * 1024
MAX_CHOICES_BYTES = 1024 * 1024
# A compiler of grammars needs a thread with this stack for the longest chain that the limits allow.
STACK_BYTES = 64 * 1024 * 1024

# At the end, so that positions in messages are those of the given text.
_OPTIONS = '\n%llguidance {"no_forcing": true}\n'

_POSITION = re.compile(r"^at \d+\(\d+\): ")
_SCHEMA_FAULT = "failed to compile JSON schema: "
_MAX_SEARCHED_BYTES = 64 * 1024


def to_lark(kind: str, text: str, choices: Sequence[str] = ()) -> str:
    """The Lark grammar of a constraint: `text` in the kind's notation, or the `choices`.

    `kind` is a field of the engine's Constraint message. Raises GrammarError for what is too large
    or malformed; other faults show when the result is compiled, on a stack of STACK_BYTES.
    """
    if kind == "choice":
        return _of_choices(choices) + _OPTIONS
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise GrammarError(f"has {size} bytes, more than {MAX_TEXT_BYTES}")
    match kind:
        case "json_schema":
            return f"start: {json_rule(parse_json(text))}{_OPTIONS}"
        case "regex":
            return f"start: /{regex_body(text)}/{_OPTIONS}"
        case "ebnf":
            return ebnf_rules(text) + _OPTIONS
        case "structural_tag":
            return lark_of_tags(parse_json(text)) + _OPTIONS
    raise GrammarError(f"is of the unknown kind {kind!r}")


def reason(message: str) -> str:
    """llguidance's complaint about a grammar of `to_lark`, in one line for its writer."""
    first = _POSITION.sub("", message.strip()).removeprefix(_SCHEMA_FAULT)
    if first.startswith("NoExtension"):
        return "nothing satisfies it"
    lines = [line.strip() for line in first.splitlines()]
    # The rest quotes the grammar, which for all but ebnf is not what the client wrote.
    text = lines[0] if lines else "cannot be compiled"
    if text.endswith("regex parse error:") and len(lines) > 1:
        text = f"{text} {lines[-1] if lines[-1].startswith('error:') else ' '.join(lines[1:4])}"
    return text[:400]


def explain(message: str, kind: str, text: str) -> str:
    """As `reason`, with the place in `text` where the fault is, as far as that can be found."""
    why = reason(message)
    if kind != "json_schema" or len(text) > _MAX_SEARCHED_BYTES:
        return why
    from octavo.schema_faults import fault_in_schema

    path = fault_in_schema(parse_json(text), message, reason)
    return why if path is None else f"at {path or '/'}: {why}"


def _of_choices(choices: Sequence[str]) -> str:
    if not choices:
        raise GrammarError("must name at least one text")
    size = sum(len(choice.encode()) for choice in choices)
    if size > MAX_CHOICES_BYTES:
        raise GrammarError(f"has {size} bytes, more than {MAX_CHOICES_BYTES}")
    if not all(choices):
        raise GrammarError("must not hold an empty text")
    return "start: CHOICE\nCHOICE: " + " | ".join(map(quoted, dict.fromkeys(choices)))
