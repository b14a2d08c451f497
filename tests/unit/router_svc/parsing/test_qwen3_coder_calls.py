"""Calls as Qwen3-Coder writes them: tags in place of JSON, values typed by the tool's schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parser_runs import calls_of, content_of, parse, parse_every_way, tool_parser

from router_svc.parsing.formats import QWEN3_CODER
from router_svc.parsing.parts import Content, Part, ToolArguments, ToolCallStart

STOP = {"type": "object", "properties": {"stop": {"type": "string"}, "n": {"type": "integer"}}}


def parsed(text: str, schema: dict[str, Any] = STOP, **options) -> list[Part]:
    parameters = {"next_bus": json.dumps(schema)}
    return parse_every_way(lambda: tool_parser(QWEN3_CODER, parameters=parameters, **options), text)


def call(*parameters: str, name: str = "next_bus") -> str:
    body = "".join(f"{parameter}\n" for parameter in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def tag(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>"


def read(value: str, schema: Any, **root) -> Any:
    """What `value` is read as by `schema`."""
    whole = {"type": "object", "properties": {"x": schema}, **root}
    parts = parsed(call(tag("x", value)), whole)
    ((_, arguments),) = calls_of(parts)
    assert content_of(parts) == ""
    return json.loads(arguments)["x"]


def test_calls_become_json_and_text_before_them_stays() -> None:
    bus = call(tag("stop", "Zoo"), tag("n", "2"))

    parts = parsed(f"Let me see.\n\n{bus}\n{call(name='now')}\n")

    assert calls_of(parts) == [("next_bus", '{"stop": "Zoo", "n": 2}'), ("now", "{}")]
    assert content_of(parts) == "Let me see."


def test_strings_are_streamed_as_they_come_and_other_values_when_they_are_whole() -> None:
    parser = tool_parser(QWEN3_CODER, parameters={"next_bus": json.dumps(STOP)})

    assert parser.feed("<tool_call>\n<function=next_b") == []
    start, arguments = parser.feed("us>\n")
    assert isinstance(start, ToolCallStart)
    assert arguments == ToolArguments(0, "{")
    assert parser.feed("<parameter=stop>\nMi") == [ToolArguments(0, '"stop": "Mi')]
    assert parser.feed('tt"e\n') == [ToolArguments(0, 'tt\\"e')]
    assert parser.feed("</parameter>\n<parameter=n>\n1") == [ToolArguments(0, '", "n": ')]
    assert parser.feed("2\n</parameter>\n</function>") == [ToolArguments(0, "12}")]


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("12", {"type": "string"}, "12"),
        ("12", {"type": "integer"}, 12),
        (" 12 ", {"type": "integer"}, 12),
        ("twelve", {"type": "integer"}, "twelve"),
        ("1.5", {"type": "integer"}, "1.5"),
        ("-1.5e3", {"type": "number"}, -1500.0),
        ("9" * 400, {"type": "integer"}, int("9" * 400)),
        ("True", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ("yes", {"type": "boolean"}, "yes"),
        ('{"a": [1, null]}', {"type": "object"}, {"a": [1, None]}),
        ("{'a': [True, None]}", {"type": "object"}, {"a": [True, None]}),
        (r'"{\"a\": 1}"', {"type": "object"}, {"a": 1}),
        ('{"a": ', {"type": "object"}, '{"a": '),
        ("[1, 2]", {"items": {"type": "integer"}}, [1, 2]),
        ("{}", {"type": "array"}, "{}"),
        ("null", {"type": "null"}, None),
        ("null", {"type": "string"}, "null"),
        ("null", {"type": "integer"}, "null"),
        ("null", {"type": ["integer", "null"]}, None),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("None", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("nullable", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "nullable"),
        ("7", {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "7"),
        ("7", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, 7),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("2", {"const": 2}, 2),
        ("2", {"type": "number", "allOf": [{"minimum": 1}]}, 2),
        ("2", {"$ref": "#/$defs/count"}, 2),
        ("2", {"$ref": "#/properties/x"}, "2"),
        ("2", {"$ref": "elsewhere"}, "2"),
        ("2", {"type": "int"}, 2),
        ("2", {"type": "coordinate"}, "2"),
        ("2", {}, "2"),
        ("2", True, "2"),
        ("2", 7, "2"),
    ],
)
def test_the_schema_gives_a_value_its_type_and_what_does_not_fit_stays_text(
    value: str, schema: Any, expected: Any
) -> None:
    assert read(value, schema, **{"$defs": {"count": {"type": "integer"}}}) == expected


def test_a_schema_too_entangled_to_follow_says_that_a_value_is_a_string() -> None:
    fan = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 9} for i in range(9)}

    assert read("2", {"$ref": "#/$defs/d0"}, **{"$defs": fan}) == "2"


@pytest.mark.parametrize("value", ["", "\n", "\n\n", " a ", "\na\n", "a\n\nb\n", "a\r"])
def test_one_line_break_on_either_side_of_a_value_is_the_tags(value: str) -> None:
    assert read(value, {"type": "string"}) == value


@pytest.mark.parametrize("value", ["Zoo", ""])
def test_a_value_may_stand_on_the_line_of_its_tags(value: str) -> None:
    text = f"<function=next_bus><parameter=stop>{value}</parameter></function>"

    assert calls_of(parsed(text)) == [("next_bus", json.dumps({"stop": value}))]


def test_a_parameter_that_the_schema_does_not_know_is_a_string_unless_it_says_more() -> None:
    text = call(tag("other", "2"))

    assert calls_of(parsed(text)) == [("next_bus", '{"other": "2"}')]
    more = {**STOP, "additionalProperties": {"type": "integer"}}
    assert calls_of(parsed(text, more)) == [("next_bus", '{"other": 2}')]


@pytest.mark.parametrize(
    "value",
    [
        "a </parameter> b",
        "a\n</parameter>\nb",
        "</parameter></parameter>",
        "a <parameter=n> in a line",
        "\n<parameter=other>\n1",
        "\n<parameter=stop>\n1",
        "<function=now>",
        "<tool_call>\n<function=now>\n</function>\nand more",
        "a\n</function>\nb",
        "<",
        "a\n</",
    ],
)
def test_tags_within_a_value_are_its_text_where_they_cannot_end_it(value: str) -> None:
    parts = parsed(call(tag("stop", value), tag("n", "1")))

    assert calls_of(parts) == [("next_bus", json.dumps({"stop": value, "n": 1}))]
    assert content_of(parts) == ""


def test_tags_within_strings_of_an_object_end_nothing() -> None:
    value = {"a": '\\" </parameter></function>'}

    assert read(json.dumps(value), {"type": "object"}) == value


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (call("<parameter=stop>\nZoo", tag("n", "1")), ['{"stop": "Zoo", "n": 1}']),
        (call("<parameter=stop>", tag("n", "1")), ['{"stop": "", "n": 1}']),
        (call(tag("n", "1"), "<parameter=stop>\nZoo"), ['{"n": 1, "stop": "Zoo"}']),
        (f"<function=next_bus>\n{tag('n', '1')}\n</function>", ['{"n": 1}']),
        (f"<function=next_bus>\n{tag('n', '1')}\n</tool_call>", ['{"n": 1}']),
        (f"<function=next_bus>\n{tag('n', '1')}\n{call()}", ['{"n": 1}', "{}"]),
        (f"<function=next_bus>\n{call()}", ["{}", "{}"]),
    ],
)
def test_tags_that_are_missing_before_others_are_not_missed(text: str, calls: list[str]) -> None:
    parts = parsed(text)

    assert calls_of(parts) == [("next_bus", arguments) for arguments in calls]
    assert content_of(parts) == ""


WHOLE = call(tag("n", "12"), tag("stop", "Zoo"))


@pytest.mark.parametrize(
    ("end", "arguments", "content"),
    [
        ("</tool", '{"n": 12, "stop": "Zoo"}', ""),
        ("</function>", '{"n": 12, "stop": "Zoo"}', ""),
        ("unction>", '{"n": 12, "stop": "Zoo"}', ""),
        ("\n</function>", '{"n": 12, "stop": "Zoo"}', ""),
        ("parameter>\n</function>", '{"n": 12, "stop": "Zoo\\n</', ""),
        ("oo\n", '{"n": 12, "stop": "Z', ""),
        ("\nZoo", '{"n": 12, "stop": "', ""),
        ("top>", '{"n": 12', "<parameter=s"),
        ("arameter=stop", '{"n": 12}', ""),
        ("2\n", '{"n": 1', ""),
        ("12\n", '{"n": "', ""),
        ("<parameter=n", "{}", ""),
    ],
)
def test_a_call_that_is_cut_short_keeps_what_came(end: str, arguments: str, content: str) -> None:
    cut = WHOLE[: WHOLE.index(end)]

    parts = parsed(cut)

    assert calls_of(parts) == [("next_bus", arguments)]
    assert content_of(parts) == content


def test_a_call_that_lacks_what_is_required_where_the_text_ends_is_left_open() -> None:
    schema = {**STOP, "required": ["stop", "n"]}
    begun = f"<function=next_bus>\n{tag('stop', 'Zoo')}\n"

    assert calls_of(parsed(begun, schema)) == [("next_bus", '{"stop": "Zoo"')]
    assert calls_of(parsed(begun + tag("n", "1"), schema)) == [
        ("next_bus", '{"stop": "Zoo", "n": 1}')
    ]
    assert calls_of(parsed(begun + "</function>", schema)) == [("next_bus", '{"stop": "Zoo"}')]


@pytest.mark.parametrize(
    ("value", "kept"),
    [('{"a": [1', '{"a": [1'), ("{'a", "\"{'a"), ("12", "12")],
)
def test_a_typed_value_that_is_cut_short_stays_a_beginning_of_json(value: str, kept: str) -> None:
    schema = {"properties": {"x": {"type": ["object", "integer"]}}}

    parts = parsed(f"<tool_call>\n<function=next_bus>\n<parameter=x>\n{value}", schema)

    assert calls_of(parts) == [("next_bus", f'{{"x": {kept}')]


@pytest.mark.parametrize(
    "text",
    [
        "See <function= and <tool_call>",
        "<tool_call>\n{}",
        "<tool_call>\n<function=>",
        "<tool_call>\n<function=next_bus",
        "<tool_call>\n<function=next bus>\n</function>",
        call(tag("stop", "Zoo"), name="no_such"),
        f"{call(tag('stop', call()), name='no_such')} x",
        "<function=no_such>\n<parameter=a",
    ],
)
def test_other_text_is_content(text: str) -> None:
    assert parsed(text) == [Content(text)]


def test_what_stands_between_parameters_ends_the_call_and_is_content() -> None:
    parts = parsed(call("Hm.", tag("n", "1")))

    assert calls_of(parts) == [("next_bus", "{}")]
    assert content_of(parts) == f"Hm.\n{tag('n', '1')}\n</function>\n</tool_call>"


def test_a_broken_tag_ends_the_call_and_is_content() -> None:
    parts = parsed(call(tag("n", "1"), "<parameter=a<b"))

    assert calls_of(parts) == [("next_bus", '{"n": 1}')]
    assert content_of(parts) == "<parameter=a<b\n</function>\n</tool_call>"


names = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
plain = st.text(max_size=8).filter(lambda text: "<" not in text)
typed_values = (
    plain.map(lambda value: (value, "string"))
    | st.integers(-(2**53), 2**53).map(lambda value: (value, "integer"))
    | st.booleans().map(lambda value: (value, "boolean"))
    | st.none().map(lambda value: (value, "null"))
    | st.lists(st.none() | plain, max_size=2).map(lambda value: (value, "array"))
    | st.dictionaries(st.text(), plain, max_size=2).map(lambda value: (value, "object"))
)


@given(typed=st.dictionaries(names, typed_values, max_size=4), size=st.integers(1, 9))
def test_a_call_as_the_format_writes_it_is_read_back(typed: dict, size: int) -> None:
    arguments = {key: value for key, (value, _) in typed.items()}
    schema = {"properties": {key: {"type": kind} for key, (_, kind) in typed.items()}}
    text = QWEN3_CODER.syntax.render([("next_bus", json.dumps(arguments)), ("now", "{}")])

    parser = tool_parser(QWEN3_CODER, parameters={"next_bus": json.dumps(schema)})
    parts = parse(parser, [text[i : i + size] for i in range(0, len(text), size)])

    (_, written), now = calls_of(parts)
    assert (json.loads(written), now) == (arguments, ("now", "{}"))
    assert content_of(parts) == ""
