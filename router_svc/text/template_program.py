"""Compiles a chat template into a program that cannot run away.

The dialect is the one transformers runs templates in: Jinja2's immutable sandbox, trimmed blocks,
loop controls, `raise_exception`, `strftime_now`, a `tojson` that leaves HTML alone and `{%
generation %}`. Two things are added to the compiled tree:

- every loop and macro calls `_octavo_tick` first, so that a deadline holds even where nothing is
  output;
- a control token's literal that content is compared with or cut at goes through `_octavo_mark`, as
  the content has (see provenance.py). Literals that the template outputs stay as they are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from router_svc.text.template_errors import TemplateRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jinja2 import Template
    from jinja2.parser import Parser
    from jinja2.runtime import Context

TICK = "_octavo_tick"
MARK = "_octavo_mark"

_MATCHING_METHODS = frozenset(
    (
        "startswith",
        "endswith",
        "removeprefix",
        "removesuffix",
        "split",
        "rsplit",
        "partition",
        "rpartition",
        "replace",
        "find",
        "rfind",
        "index",
        "rindex",
        "count",
    )
)
_MAX_REPEATED = 1_000_000  # characters or items that `*` may make
_MAX_EXPONENT = 64


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled template, and what it expects of messages, as its tree shows."""

    template: Template
    knows_developer_role: bool
    tests_null_content: bool  # tells a turn without content from an empty one
    iterates_content: bool  # only knows content as a list of parts
    joins_arguments: bool  # puts tool-call arguments into text as they are


def compile_template(source: str, holds_literal: Callable[[str], bool]) -> Program:
    """Compiles `source`; `holds_literal` tells whether a text holds a control token's literal.

    Raises jinja2.TemplateSyntaxError.
    """
    environment = _environment()
    tree = environment.parse(source)
    expectations = _Expectations(tree)
    tree = _Transformer(holds_literal).visit(tree)
    try:
        template = environment.from_string(tree)
    except RecursionError as error:
        raise TemplateSyntaxError("the template is nested too deeply", 1) from error
    return Program(
        template,
        knows_developer_role="developer" in source,
        tests_null_content=expectations.tests_null_content(),
        iterates_content=expectations.iterates_content(),
        joins_arguments=expectations.joins_arguments(),
    )


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which `*` and `**` make nothing huge either."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(times, int):
                    _refuse_above(_MAX_REPEATED, len(sequence) * times)
        elif isinstance(right, int):
            _refuse_above(_MAX_EXPONENT, right)
        return super().call_binop(context, operator, left, right)


def _refuse_above(limit: int, size: int) -> None:
    if size > limit:
        raise SecurityError(f"the result would have size {size}, at most {limit} is allowed")


class _Generation(Extension):
    """{% generation %} marks the assistant's words for training; serving looks through it."""

    tags = {"generation"}  # noqa: RUF012 -- the base class declares an instance variable

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusedError(str(message))


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Models were trained on the standard library's spacing.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


class _Transformer(NodeTransformer):
    """Adds ticks and marks to a template's tree."""

    def __init__(self, holds_literal: Callable[[str], bool]) -> None:
        self._holds_literal = holds_literal

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        match node:
            case nodes.For() | nodes.Macro():
                node.body.insert(0, _tick(node))
            case nodes.Compare():
                node.expr = self._marked(node.expr)
                for operand in node.ops:
                    operand.expr = self._marked(operand.expr)
            case nodes.Call(node=nodes.Getattr(attr=name)) if name in _MATCHING_METHODS:
                node.args = [self._marked(argument) for argument in node.args]
            case nodes.Filter(name="replace"):
                node.args = [self._marked(argument) for argument in node.args]
        return super().generic_visit(node, *args, **kwargs)

    def _marked(self, node: nodes.Expr) -> nodes.Expr:
        if isinstance(node, nodes.List | nodes.Tuple):
            node.items = [self._marked(item) for item in node.items]
        if (
            isinstance(node, nodes.Const)
            and isinstance(node.value, str)
            and self._holds_literal(node.value)
        ):
            return _call(MARK, node, node)
        return node


def _call(name: str, at: nodes.Node, *arguments: nodes.Expr) -> nodes.Call:
    function = nodes.Name(name, "load", lineno=at.lineno)
    return nodes.Call(function, list(arguments), [], None, None, lineno=at.lineno)


def _tick(at: nodes.Node) -> nodes.ExprStmt:
    return nodes.ExprStmt(_call(TICK, at), lineno=at.lineno)


class _Expectations:
    """Reads off a tree what the template expects of messages."""

    def __init__(self, tree: nodes.Template) -> None:
        self._tree = tree

    def tests_null_content(self) -> bool:
        """`content is none`, `content != none`."""
        if any(test.name == "none" and _reads(test.node, "content") for test in self._tests()):
            return True
        return any(
            _reads(compare.expr, "content")
            and any(isinstance(o.expr, nodes.Const) and o.expr.value is None for o in compare.ops)
            for compare in self._tree.find_all(nodes.Compare)
        )

    def iterates_content(self) -> bool:
        """`for part in message.content`, and no `is string` beside it."""
        return any(
            _reads(loop.iter, "content") for loop in self._tree.find_all(nodes.For)
        ) and not any(test.name == "string" for test in self._tests())

    def joins_arguments(self) -> bool:
        """`… + call.arguments`, and neither a test of its type nor `tojson` anywhere."""
        converted = any(
            _reads(converter.node, "arguments")
            for converter in (*self._tests(), *self._tree.find_all(nodes.Filter))
        )
        return not converted and any(
            _reads(child, "arguments")
            for parent in self._tree.find_all((nodes.Add, nodes.Concat, nodes.Output))
            for child in parent.iter_child_nodes()
        )

    def _tests(self) -> Iterator[nodes.Test]:
        return self._tree.find_all(nodes.Test)


def _reads(node: nodes.Node | None, key: str) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == key
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == key
    return False
