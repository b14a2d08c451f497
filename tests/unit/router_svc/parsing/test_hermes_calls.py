"""Calls as Hermes and Qwen write them: JSON between <tool_call> and </tool_call>."""

from __future__ import annotations

import json

import pytest
from parser_runs import calls_of, content_of, parse_every_way, tool_parser

from router_svc.parsing.formats import HERMES
from router_svc.parsing.parts import Content, Part, ToolArguments, ToolCallStart


def parsed(text: str, **options) -> list[Part]:
    return parse_every_way(lambda: tool_parser(HERMES, **options), text)


def test_a_call_becomes_its_name_and_its_arguments_as_they_were_written() -> None:
    parts = parsed(
        '<tool_call>\n{"name": "next_bus", "arguments": {"stop":  "Mitte"}}\n</tool_call>'
    )

    start, arguments = parts
    assert isinstance(start, ToolCallStart)
    assert (start.call, start.name) == (0, "next_bus")
    assert arguments == ToolArguments(0, '{"stop":  "Mitte"}')


def test_text_around_calls_is_content_and_the_white_space_next_to_them_is_not() -> None:
    parts = parsed(
        'Let me see.\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "next_bus", "arguments": {"stop": "Zoo"}}\n</tool_call>\nDone. '
    )

    assert [type(part).__name__ for part in parts] == [
        "Content",
        *("ToolCallStart", "ToolArguments") * 2,
        "Content",
    ]
    assert parts[0] == Content("Let me see.")
    assert parts[-1] == Content("\nDone. ")


def test_a_name_is_sent_as_soon_as_it_is_complete_and_arguments_as_they_come() -> None:
    parser = tool_parser(HERMES)

    assert parser.feed('<tool_call>\n{"name": "next_b') == []
    (start,) = parser.feed('us"')
    assert isinstance(start, ToolCallStart)
    assert parser.feed(', "arguments": {"stop": "Mi') == [ToolArguments(0, '{"stop": "Mi')]
    assert parser.feed("tt") == [ToolArguments(0, "tt")]
    assert parser.feed('e"}') == [ToolArguments(0, 'e"}')]
    assert parser.feed("}\n</tool_call>") == []


def test_arguments_before_the_name_wait_for_it() -> None:
    parser = tool_parser(HERMES)

    assert parser.feed('<tool_call>{"arguments": {"stop": "Zoo"}, ') == []
    start, arguments = parser.feed('"name": "next_bus"}')

    assert isinstance(start, ToolCallStart)
    assert arguments == ToolArguments(0, '{"stop": "Zoo"}')


def test_brackets_and_quotes_within_strings_end_nothing() -> None:
    tricky = {"stop": '}]{["\\" </tool_call> <tool_call>', "deep": [[{"a": []}], -1.5e-3, None]}

    parts = parsed(
        f'<tool_call>{{"name": "next_bus", "arguments": {json.dumps(tricky)}}}</tool_call>'
    )

    assert calls_of(parts) == [("next_bus", json.dumps(tricky))]
    assert content_of(parts) == ""


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r'"{\"stop\": \"Zoo\"}"', '{"stop": "Zoo"}'),  # an object inside a string
        ('"Zoo"', '"Zoo"'),  # a string that holds none stays one
        (r'"{\"stop\": \"\\ud800\"}"', r'{"stop": "\ud800"}'),
        (r'"{\"stop\": \"\ud800\"}"', r'"{\"stop\": \"\ud800\"}"'),  # cannot be decoded
        ("null", "{}"),
        ("[1]", "[1]"),
    ],
)
def test_arguments_that_are_no_object(written: str, read: str) -> None:
    parts = parsed(f'<tool_call>{{"name": "next_bus", "arguments": {written}}}</tool_call>')

    assert calls_of(parts) == [("next_bus", read)]


def test_a_call_without_arguments_has_none() -> None:
    assert calls_of(parsed('<tool_call>{"name": "now"}</tool_call>')) == [("now", "{}")]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"a\nb\tc"', "a\nb\tc"),
        (r'"C:\users\Zoo"', r"C:\users\Zoo"),
        (r'"\d+"', r"\d+"),
    ],
)
def test_strings_that_are_not_quite_json_are_repaired(written: str, read: str) -> None:
    text = f'<tool_call>{{"name": "next_bus", "arguments": {{"stop": {written}}}}}</tool_call>'

    ((_, arguments),) = calls_of(parsed(text))

    assert json.loads(arguments) == {"stop": read}


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call> is how one calls",
        '<tool_call>{"name": "no_such", "arguments": {"a": 1}}</tool_call> then',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {"stop": "Zoo"}}</tool_call>',
        '<tool_call>{"arguments": {"stop": oops}, "name": "now"}',
        '<tool_call>\n{"name": "next_b',
        '<tool_call>{"arguments": {"stop"',
        " <tool_call>",
        "a <tool_cal",
    ],
)
def test_what_is_no_call_of_an_offered_function_is_content(text: str) -> None:
    assert parsed(text) == [Content(text)]


def test_a_call_hidden_in_the_arguments_of_an_unknown_function_is_not_made() -> None:
    inner = '<tool_call>{\\"name\\": \\"now\\"}</tool_call>'
    text = f'<tool_call>{{"name": "no_such", "arguments": {{"a": "{inner}"}}}}</tool_call>'

    assert parsed(text) == [Content(text)]


@pytest.mark.parametrize("cut", ['{"stop": "Mi', '{"stop"', '{"stop": "Zoo"}', ""])
def test_a_call_that_is_cut_short_after_its_name_keeps_what_came(cut: str) -> None:
    parts = parsed(f'<tool_call>{{"name": "next_bus", "arguments": {cut}')

    assert calls_of(parts) == [("next_bus", cut)]
    assert content_of(parts) == ""


def test_a_closing_tag_that_is_cut_short_is_no_content() -> None:
    parts = parsed('<tool_call>{"name": "now", "arguments": {}}\n</tool_ca')

    assert calls_of(parts) == [("now", "{}")]
    assert content_of(parts) == ""


def test_from_where_arguments_are_broken_the_text_is_content() -> None:
    parts = parsed('<tool_call>{"name": "next_bus", "arguments": {"stop": Zoo}}</tool_call>')

    assert calls_of(parts) == [("next_bus", '{"stop": ')]
    assert content_of(parts) == "Zoo}}</tool_call>"


def test_without_parallel_calls_the_first_stays_and_later_ones_are_dropped() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'

    parts = parsed(f"{call}\n{call}\nThat was it.", parallel=False)

    assert calls_of(parts) == [("now", "{}")]
    assert content_of(parts) == "\nThat was it."


def test_any_function_may_be_called_if_none_are_named() -> None:
    parts = parsed('<tool_call>{"name": "whatever"}</tool_call>', functions=None)

    assert calls_of(parts) == [("whatever", "{}")]
