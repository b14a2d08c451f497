"""Calls as Llama 4 writes them: a list of Python calls, whose arguments become JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from parser_runs import calls_of, content_of, parse_every_way, tool_parser

from router_svc.parsing.formats import PYTHONIC
from router_svc.parsing.parts import Content, Part, ToolArguments, ToolCallStart


def parsed(text: str) -> list[Part]:
    return parse_every_way(lambda: tool_parser(PYTHONIC), text)


def test_keyword_arguments_become_an_object() -> None:
    parts = parsed('[next_bus(stop="Zoo", n=2), now()]')

    assert calls_of(parts) == [("next_bus", '{"stop": "Zoo", "n": 2}'), ("now", "{}")]
    assert content_of(parts) == ""


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it\\'s \"x\"'", 'it\'s "x"'),
        ('"""two\nlines"""', "two\nlines"),
        ("''", ""),
        (r"'\n\x41\u00e9\U0001F600\q'", "\nAé😀\\q"),
        ("True", True),
        ("false", False),
        ("None", None),
        ("-1_000", -1000),
        ("+.5", 0.5),
        ("2.", 2.0),
        ("1e-3", 1e-3),
        ("[1, [2, ], {}, ]", [1, [2], {}]),
        ("{'a': {\"b\": [None]}, }", {"a": {"b": [None]}}),
    ],
)
def test_python_literals_become_json(literal: str, value: Any) -> None:
    ((_, arguments),) = calls_of(parsed(f"[next_bus(x={literal})]"))

    assert json.loads(arguments) == {"x": value}


def test_name_and_arguments_are_streamed() -> None:
    parser = tool_parser(PYTHONIC)

    assert parser.feed("[next_bus") == []
    start, arguments = parser.feed("(")
    assert isinstance(start, ToolCallStart)
    assert arguments == ToolArguments(0, "{")
    assert parser.feed("stop='Mi") == [ToolArguments(0, '"stop": "Mi')]
    assert parser.feed("tte')]") == [ToolArguments(0, 'tte"}')]


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("<|python_start|>", "<|python_end|>"), ("<|python_tag|>", ""), ("\n", "\n")],
)
def test_tags_around_the_list_are_markup(before: str, after: str) -> None:
    parts = parsed(f"{before}[now()]{after}")

    assert calls_of(parts) == [("now", "{}")]
    assert content_of(parts) == ""


@pytest.mark.parametrize(
    "text",
    [
        "See [now()] in the middle",
        "[1, 2, 3]",
        "[link](https://example.com)",
        "[no_such(x=1)] x",
        "[next_bus",
        "[]",
        "[now[",
        "<|python_start|>hm",
    ],
)
def test_other_text_is_content(text: str) -> None:
    assert parsed(text) == [Content(text)]


@pytest.mark.parametrize(
    ("broken", "kept", "content"),
    [
        ("[next_bus(stop=Zoo)]", '{"stop": ', "Zoo)]"),
        ("[next_bus('Zoo')]", "{", "'Zoo')]"),
        ("[next_bus(stop=[1,,2])]", '{"stop": [1, ', ",2])]"),
        ("[next_bus(stop=1 2)]", '{"stop": 1', "2)]"),
        ("[next_bus(stop={1: 2})]", '{"stop": {', "1: 2})]"),
        ("[next_bus(stop=01)]", '{"stop": ', "01)]"),
        ("[next_bus(stop=__import__('os'))]", '{"stop": ', "__import__('os'))]"),
    ],
)
def test_from_where_arguments_are_broken_the_text_is_content(
    broken: str, kept: str, content: str
) -> None:
    parts = parsed(broken)

    assert calls_of(parts) == [("next_bus", kept)]
    assert content_of(parts) == content


def test_a_call_that_is_cut_short_keeps_what_came() -> None:
    parts = parsed("[next_bus(stop='Zoo', n=[1, ")

    assert calls_of(parts) == [("next_bus", '{"stop": "Zoo", "n": [1')]
