"""Calls as Mistral's models write them: an array, or a name with arguments."""

from __future__ import annotations

import re

import pytest
from parser_runs import calls_of, content_of, parse_every_way, tool_parser

from router_svc.parsing.formats import MISTRAL_ARRAY
from router_svc.parsing.parts import Content, Part, ToolArguments, ToolCallStart


def parsed(text: str) -> list[Part]:
    return parse_every_way(lambda: tool_parser(MISTRAL_ARRAY), text)


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS][{"name":"next_bus","arguments":{"stop":"]"}},{"name":"now","arguments":{}}]',
        '[TOOL_CALLS] [ {"name":"next_bus","arguments":{"stop":"]"}} , {"name":"now"} ]\n',
        '[TOOL_CALLS]next_bus[ARGS]{"stop":"]"}[TOOL_CALLS]now[ARGS]{}',
        '[TOOL_CALLS]next_bus{"stop":"]"}\n[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}',
    ],
)
def test_both_forms_hold_the_same_calls(text: str) -> None:
    parts = parsed(text)

    assert calls_of(parts) == [("next_bus", '{"stop":"]"}'), ("now", "{}")]
    assert content_of(parts) == ""


def test_ids_are_nine_letters_or_digits_as_the_templates_demand() -> None:
    start = parsed("[TOOL_CALLS]now[ARGS]{}")[0]

    assert isinstance(start, ToolCallStart)
    assert re.fullmatch(r"[A-Za-z0-9]{9}", start.id)


def test_arguments_of_the_named_form_are_streamed() -> None:
    parser = tool_parser(MISTRAL_ARRAY)

    assert parser.feed("[TOOL_CALLS]next_bus[ARGS]") == []
    start, arguments = parser.feed('{"st')

    assert isinstance(start, ToolCallStart)
    assert arguments == ToolArguments(0, '{"st')


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS] is a token",
        "[TOOL_CALLS]no_such[ARGS]{} bye",
        '[TOOL_CALLS][{"name":"no_such","arguments":{}}]',
        "[TOOL_CALLS][1, 2]",
        "[TOOL_CALLS][",
        "[TOOL_CALLS]next_bus[AR",
        "[[TOOL_CALL",
    ],
)
def test_other_text_is_content(text: str) -> None:
    assert parsed(text) == [Content(text)]
