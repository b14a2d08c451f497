"""Calls as Llama 3 writes them: JSON objects, perhaps after a control token."""

from __future__ import annotations

import pytest
from parser_runs import calls_of, content_of, parse_every_way, tool_parser

from router_svc.parsing.formats import LLAMA3_JSON
from router_svc.parsing.parts import Content, Part

BUS = '{"name": "next_bus", "parameters": {"stop": "Zoo"}}'
NOW = '{"name": "now", "parameters": {}}'


def parsed(text: str) -> list[Part]:
    return parse_every_way(lambda: tool_parser(LLAMA3_JSON), text)


@pytest.mark.parametrize("before", ["", "\n\n", "<|python_tag|>", "<|python_tag|> "])
@pytest.mark.parametrize("between", ["; ", ";", "\n", " ;\n<|python_tag|>"])
def test_calls_are_objects_with_or_without_a_tag_before(before: str, between: str) -> None:
    parts = parsed(before + BUS + between + NOW)

    assert calls_of(parts) == [("next_bus", '{"stop": "Zoo"}'), ("now", "{}")]
    assert content_of(parts) == ""


def test_a_call_may_follow_text_on_a_line_of_its_own() -> None:
    parts = parsed(f"One moment.\n  {BUS}")

    assert parts[0] == Content("One moment.")
    assert calls_of(parts) == [("next_bus", '{"stop": "Zoo"}')]


def test_other_keys_of_a_call_are_read_over() -> None:
    parts = parsed('{"type": "function", "name": "now", "parameters": {}, "extra": [1, "}"]}')

    assert calls_of(parts) == [("now", "{}")]
    assert content_of(parts) == ""


@pytest.mark.parametrize(
    "text",
    [
        f"The call is {BUS}",  # not at a line's begin
        '{"city": "Berlin", "name": "now"}',  # an object whose first key is no call's
        '{"name": "Ada Lovelace"}',
        "{ x; y }\n{{{",
        "<|python_tag|>print(1)",
        '<|python_tag|>{"name": "no_such", "parameters": {}}; bye',
    ],
)
def test_other_text_is_content(text: str) -> None:
    assert parsed(text) == [Content(text)]


def test_an_object_that_cannot_be_a_call_does_not_wait_for_its_end() -> None:
    parser = tool_parser(LLAMA3_JSON)

    assert parser.feed('{"city": ') == [Content('{"city":')]
