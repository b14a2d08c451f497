"""Grammars of answers with tool calls, in llguidance's dialect of Lark.

A format is given by the texts around a call, and everything follows from those: what a call must
look like, where in free text one begins, and what an example looks like.

    begin          head                             arguments          tail end
    <tool_call>\\n  {"name": "next_bus", "arguments": {"stop_name": …}  }    \\n</tool_call>

The arguments' schema is a grammar of its own inside (%json): its references keep their root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson
from octavo.lark import JSON_WHITESPACE, GrammarError, json_rule, quoted

from router_svc.parsing.tagged_arguments import TaggedArguments, tagged_argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_BARE_NAME = re.compile(r"[A-Za-z0-9_.:\-]+")
_KEYWORD = re.compile(r"[^\s=,'\"()\[\]{}<]+")
# What a schema may say of an object as a whole, which a list of keyword arguments cannot follow.
_BEYOND_KEYWORDS = frozenset(
    ("$ref", "anyOf", "oneOf", "allOf", "patternProperties", "minProperties", "maxProperties")
)
_TEXT = "TEXT: /(?s:.*)/"


class Function(NamedTuple):
    """A function that may be called. `parameters` is a JSON schema's text; None: no arguments.

    The arguments of a `strict` one satisfy its schema to the letter; a keyword that cannot be
    enforced is an error for it, and overlooked for others.
    """

    name: str
    parameters: str | None = None
    strict: bool = False
    description: str = ""


class ReasoningTags(NamedTuple):
    """The tags around reasoning; `opened` if the prompt has written the first."""

    opening: str
    closing: str
    opened: bool


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """The texts around calls. In `head`, NAME is the name as it is and "NAME" the name as JSON.

    `trigger`, which is in `begin`, is what free text cannot contain but as a call. A format
    without one has `lead`, a regular expression for what begins a call of NAME at a line's begin.
    """

    begin: str
    head: str
    tail: str
    between: str
    end: str
    trigger: str = ""
    lead: str = ""
    after_lead: str = ""  # what then follows up to the arguments
    markers: tuple[str, ...] = ()
    # An object, Python's keyword arguments, or a tag for each argument.
    arguments: Literal["object", "keywords", "tags"] = "object"

    def head_of(self, name: str) -> str:
        """What stands before the arguments of a call of `name`."""
        if not _BARE_NAME.fullmatch(name):
            raise ValueError(f"function {name!r}: only letters, digits and . _ : - are allowed")
        return self.head.replace("NAME", name)

    def render(self, calls: Iterable[tuple[str, str]]) -> str:
        """Calls, each a name and its arguments as JSON text, as the model would write them."""
        rendered = [
            self.head_of(name) + self._render_arguments(arguments) + self.tail
            for name, arguments in calls
        ]
        return self.begin + self.between.join(rendered) + self.end

    def _render_arguments(self, arguments: str) -> str:
        if self.arguments == "object":
            return arguments
        try:
            values = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return arguments  # what a model wrote need not be JSON; it stays as it was
        if not isinstance(values, dict):
            return arguments
        if self.arguments == "tags":
            return "".join([tagged_argument(key, value) for key, value in values.items()])
        return ", ".join([f"{key}={orjson.dumps(values[key]).decode()}" for key in values])


def tool_grammar(
    syntax: CallSyntax,
    functions: Sequence[Function],
    *,
    required: bool,
    parallel: bool,
    special_tokens: Mapping[str, int] | None = None,
    reasoning: ReasoningTags | None = None,
) -> str:
    """The grammar of an answer that may call `functions`, or must if `required`.

    A required answer is a call, or several if `parallel`, and nothing else. Otherwise it is free
    text, in which what begins as a call goes on as one; without `parallel` a call ends it.
    `special_tokens` maps texts that are control tokens to their ids. Raises ValueError, which names
    the function, for a name or a schema that no grammar can be made of.
    """
    if not functions:
        raise ValueError("no functions to call")
    lark = _Lark(syntax.markers, special_tokens or {})
    calls = lark.calls(syntax, functions, loose=not required)
    if required:
        answer = f"answer: {lark.text(syntax.begin)} call{_more(lark, syntax, parallel=parallel)}"
        rules = [f"{answer} {lark.text(syntax.end)}", calls.any]
    elif syntax.trigger:
        rules = [*_answer_with_trigger(lark, syntax, parallel=parallel), calls.any]
    else:
        rules = [*_answer_with_leads(lark, syntax, functions, parallel=parallel), calls.any]
    return with_reasoning([*rules, *calls.rules], reasoning, special_tokens)


def with_reasoning(
    rules: Iterable[str],
    reasoning: ReasoningTags | None,
    special_tokens: Mapping[str, int] | None = None,
) -> str:
    """A grammar from Lark rules, of which `answer` is the first symbol, after reasoning if any.

    Reasoning that the prompt has opened must be closed; else the answer may begin with some.
    """
    rules = [*rules, _TEXT]
    if reasoning is None:
        return "\n".join(["start: answer", *rules]) + "\n"
    special = special_tokens or {}
    lark = _Lark((reasoning.opening, reasoning.closing), special)
    opening = "" if reasoning.opened else lark.text(reasoning.opening)
    thought = f"{opening} TEXT {lark.text(reasoning.closing)}".strip()
    # A lexeme that ends with text is lazy, to end where the tag first ends. Tokens are no lexemes.
    lazy = "" if reasoning.closing in special else "[lazy]"
    optional = "" if reasoning.opened else "?"
    start = f"start: (thought GAP?){optional} answer"
    gap = r"GAP: /[ \n]{1,4}/"
    return "\n".join([start, f"thought{lazy}: {thought}", gap, *rules]) + "\n"


def _more(lark: _Lark, syntax: CallSyntax, *, parallel: bool) -> str:
    return f" ({lark.text(syntax.between)} call)*" if parallel else ""


def _answer_with_trigger(lark: _Lark, syntax: CallSyntax, *, parallel: bool) -> list[str]:
    opening, trigger, begin = syntax.begin.partition(syntax.trigger)
    # Where each call has the trigger, the next one is found in the text after this one.
    more = _more(lark, syntax, parallel=parallel) if trigger not in syntax.between else ""
    calls = f"calls: {lark.text(begin)} call{more} {lark.text(syntax.end)}"
    lead = f"TEXT {lark.text(trigger)}"
    if trigger in lark.special_tokens:
        leads = [f"lead: {lead}"]
    elif lark.names_tokens(opening):  # which are no text
        leads = [f"lead: text_lead | TEXT {lark.text(opening + trigger)}"]
        leads += [f"text_lead[lazy]: {lead}"]
    else:
        leads = [f"lead[lazy]: {lead}"]
    answer = "answer: (lead calls)* TEXT" if parallel else "answer: lead calls | TEXT"
    return [answer, *leads, calls]


def _answer_with_leads(
    lark: _Lark, syntax: CallSyntax, functions: Sequence[Function], *, parallel: bool
) -> list[str]:
    rest = (
        f"{lark.text(syntax.tail)}{_more(lark, syntax, parallel=parallel)} {lark.text(syntax.end)}"
    )
    called, rules = [], []
    for i, function in enumerate(functions):
        lead = syntax.lead.replace("NAME", re.escape(function.name)).replace("/", r"\/")
        rules.append(f"lead_{i}[lazy]: /((?s:.*)\\n)?[ \\t]*{lead}/")
        called.append(
            f"lead_{i} {lark.text(syntax.after_lead)} arguments_{i} {rest}".replace("  ", " ")
        )
    any_call = " | ".join(called)
    answer = f"answer: ({any_call})* TEXT" if parallel else f"answer: {any_call} | TEXT"
    return [answer, *rules]


class _Calls(NamedTuple):
    any: str
    rules: list[str]


class _Lark:
    """Writes parts of grammars."""

    def __init__(self, markers: Iterable[str], special_tokens: Mapping[str, int]) -> None:
        self.special_tokens = {
            marker: special_tokens[marker] for marker in markers if marker in special_tokens
        }
        self._split = re.compile(
            "(" + "|".join([re.escape(marker) for marker in self.special_tokens]) + ")"
        )

    def text(self, text: str) -> str:
        """Exactly `text`, in which markers that are control tokens are those tokens."""
        pieces = self._split.split(text) if self.special_tokens else [text]
        return " ".join(
            [
                f"<[{self.special_tokens[piece]}]>"
                if piece in self.special_tokens
                else quoted(piece)
                for piece in pieces
                if piece
            ]
        )

    def names_tokens(self, text: str) -> bool:
        """Whether some of `text` is control tokens."""
        return any(marker in text for marker in self.special_tokens)

    def calls(self, syntax: CallSyntax, functions: Sequence[Function], *, loose: bool) -> _Calls:
        """The rule `call` for any of the functions, and rules arguments_<i> for each.

        `loose`: the arguments of functions that are not strict are any object.
        """
        rules, names = [], []
        tags = TaggedArguments()
        for i, function in enumerate(functions):
            head = self.text(syntax.head_of(function.name))
            names.append(f"call_{i}")
            rules.append(f"call_{i}: {head} arguments_{i} {self.text(syntax.tail)}")
            schema = _schema(function, loose=loose)
            match syntax.arguments:
                case "object":
                    rules.append(f"arguments_{i}: {_json(schema, function)}")
                case "keywords":
                    rules += _keywords(i, function, schema)
                case "tags":
                    rules.append(f"arguments_{i}: {_tags(tags, function, schema)}")
        rules += tags.rules
        return _Calls(f"call: {' | '.join(names)}", rules)


def _keywords(i: int, function: Function, schema: dict[str, Any]) -> list[str]:
    """Keyword arguments in the schema's order, each value by the schema of its property."""
    _check_form(function, schema, "keywords")
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        value = _json({}, function)
        some = f'KEYWORD_{i} value_{i} (", " KEYWORD_{i} value_{i})*'
        keyword = rf"KEYWORD_{i}: /[A-Za-z_][A-Za-z0-9_]*=/"
        return [f"arguments_{i}: ({some})?", keyword, f"value_{i}: {value}"]
    shared: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    required = frozenset(schema.get("required") or ())
    rules = [f"arguments_{i}: first_{i}_0"]
    for k, (name, value) in enumerate(properties.items()):
        if not _KEYWORD.fullmatch(name):
            raise ValueError(f"function {function.name!r}: {name!r} cannot be a keyword")
        keyword = quoted(f"{name}=")
        own = value if isinstance(value, dict) else {}
        skip = name not in required
        for rule, comma in (("first", ""), ("next", '", " ')):
            skipped = f" | {rule}_{i}_{k + 1}" if skip else ""
            rules.append(
                f"{rule}_{i}_{k}: {comma}{keyword} value_{i}_{k} next_{i}_{k + 1}{skipped}"
            )
        rules.append(f"value_{i}_{k}: {_json({**own, **shared}, function)}")
    return [*rules, f'first_{i}_{len(properties)}: ""', f'next_{i}_{len(properties)}: ""']


def _tags(tags: TaggedArguments, function: Function, schema: dict[str, Any]) -> str:
    _check_form(function, schema, "tags")
    try:
        return tags.of_function(
            schema, lambda own: _json_of(own, strict=function.strict), strict=function.strict
        )
    except ValueError as error:
        raise ValueError(f"function {function.name!r}: {error}") from error


def _check_form(function: Function, schema: dict[str, Any], form: str) -> None:
    if function.strict and (beyond := sorted(schema.keys() & _BEYOND_KEYWORDS)):
        raise ValueError(f"function {function.name!r}: {beyond[0]} has no form as {form}")


def _schema(function: Function, *, loose: bool) -> dict[str, Any]:
    if function.parameters is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if loose and not function.strict:
        return {"type": "object"}
    schema = orjson.loads(function.parameters)
    if not isinstance(schema, dict):
        raise ValueError(f"function {function.name!r}: its parameters must be a schema object")
    if not schema.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf"}:
        schema = {"type": "object", **schema}
    return schema


def _json(schema: dict[str, Any], function: Function) -> str:
    try:
        return _json_of(schema, strict=function.strict)
    except GrammarError as error:
        raise ValueError(f"function {function.name!r}: {error}") from error


def _json_of(schema: dict[str, Any], *, strict: bool) -> str:
    if strict:
        return json_rule(schema)
    options = {"whitespace_pattern": JSON_WHITESPACE, "lenient": True}
    return "%json " + orjson.dumps({**schema, "x-guidance": options}).decode()
