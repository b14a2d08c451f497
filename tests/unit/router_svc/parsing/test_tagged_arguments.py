"""What grammars let a model write between tags, where strings stand without quotes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from byte_matcher import ByteMatcher
from jsonschema import FormatChecker, validate
from llguidance import LLMatcher
from octavo.grammars import to_lark
from parser_runs import calls_of, parse, tool_parser

from router_svc.parsing.formats import QWEN3_CODER
from router_svc.parsing.grammar import Function

# jsonschema's "time" has no offset, RFC 3339's must have one.
CHECKER = FormatChecker([name for name in FormatChecker.checkers if name != "time"])
DEFS = {"$defs": {"short": {"type": "string", "maxLength": 3}}}


def whole(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"], **DEFS}


def matcher_of(schema: dict[str, Any], *, strict: bool = True) -> ByteMatcher:
    function = Function("f", json.dumps(schema), strict=strict)
    return ByteMatcher(QWEN3_CODER.grammar([function], required=True, parallel=False))


def takes(matcher: ByteMatcher, value: str) -> bool:
    return matcher.accepts(
        f"<tool_call>\n<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>"
    )


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"type": "string"}, ["", "a\n\n", '"', "<", "<parameter", "7"], ["</parameter>"]),
        ({}, ["a", "7"], ["\n<parameter=a>", "\n</function>"]),
        ({"enum": ["b/c", "", "null"]}, ["b/c", "", "null"], ["b", '"b/c"']),
        ({"const": "a b"}, ["a b"], ["a"]),
        ({"enum": [1, "a"]}, ["1"], ["a", '"a"']),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["éé", "a\nb"], ["a", "abcd"]),
        ({"type": "string", "pattern": r"^\d+$"}, ["12"], ["", "a", "1a", "١"]),
        ({"type": "string", "pattern": "a|b"}, ["xay", "b"], ["x"]),
        ({"type": "string", "pattern": "^a|b$"}, ["a", "b"], ["x"]),
        ({"type": "string", "pattern": "^$"}, [""], ["a"]),
        ({"type": "string", "pattern": "", "maxLength": 1}, ["", "a"], ["ab"]),
        ({"type": "string", "pattern": "a/b"}, ["a/b", "\na/b\n"], ["ab"]),
        ({"allOf": [{"$ref": "#/$defs/short"}, {"pattern": "^a"}]}, ["abc"], ["b", "abcd"]),
        ({"anyOf": [{"enum": ["yes"]}, {"$ref": "#/$defs/short"}, {"type": "null"}]},
         ["yes", "abc", "null"], ["yess"]),
        ({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "integer"}]}, ["1"], ["12"]),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, ["12"], ["a"]),
        ({"type": ["integer", "null"], "minimum": 5}, ["5", "null"], ["4", "None"]),
        ({"type": "object", "required": ["a"]}, ['{"a": "</parameter>"}'], ["{}", "'a'"]),
        ({"type": "array", "items": {"$ref": "#/$defs/short"}}, ['["abc"]'], ['["abcd"]']),
        ({"type": "string", "format": "date"}, ["2026-11-30"], ["2026-11-31", "today"]),
    ],
)  # fmt: skip
def test_a_value_satisfies_its_schema(schema: Any, taken: list[str], refused: list[str]) -> None:
    matcher = matcher_of(whole(schema))

    assert [value for value in taken if not takes(matcher, value)] == []
    assert [value for value in refused if takes(matcher, value)] == []


@pytest.mark.parametrize(
    "schema",
    [
        *({"type": "string", "format": form, "maxLength": 60} for form in
          ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
           "uri")),
        {"type": "string", "maxLength": 9},
        {"type": ["string", "null"], "maxLength": 4, "pattern": "^n"},
        {"type": ["number", "string"]},
        {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 9}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_a_model_may_write_is_read_as_what_satisfies_the_schema(schema: Any) -> None:
    matcher = matcher_of(whole(schema))
    parameters = {"f": json.dumps(whole(schema))}

    for seed in range(5):
        text = matcher.write(seed)
        ((_, arguments),) = calls_of(
            parse(tool_parser(QWEN3_CODER, ["f"], parameters=parameters), [text])
        )
        validate(json.loads(arguments), whole(schema), format_checker=CHECKER)


def test_parameters_come_in_the_order_of_the_schema_and_optional_ones_may_be_missing() -> None:
    schema = {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]}
    matcher = matcher_of(schema)

    def written(*keys: str) -> str:
        arguments = json.dumps(dict.fromkeys(keys, "1"))
        return QWEN3_CODER.syntax.render([("f", arguments)])

    assert all(matcher.accepts(written(*keys)) for keys in ("abc", "ab", "b", "bc"))
    assert not any(matcher.accepts(written(*keys)) for keys in ("", "a", "ba", "abcd"))


def test_without_properties_there_may_be_any_parameters() -> None:
    text = QWEN3_CODER.syntax.render([("f", '{"a": "1", "b": "text"}')])

    assert matcher_of({"type": "object"}).accepts(text)
    assert not matcher_of({"additionalProperties": {"type": "integer"}}).accepts(text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": "phone"},
        {"type": "string", "enum": [1]},
        {"type": "string", "minLength": "0,9})/ | /(?s:.{0"},
        {"type": "string", "maxLength": 2.0},
        {"type": "string", "maxLength": None},
        {"allOf": [{"anyOf": [{"minLength": 1}] * 9}] * 2},
    ],
)
def test_a_string_that_cannot_be_enforced_is_refused_where_it_has_to_be(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"^function 'f': properties/x: "):
        matcher_of(whole(schema))

    assert takes(matcher_of(whole(schema), strict=False), "any text")


def test_a_pattern_must_be_one_by_itself() -> None:
    schema = json.dumps(whole({"type": "string", "pattern": "a)|(b"}))
    lark = QWEN3_CODER.grammar([Function("f", schema, strict=True)], required=True, parallel=False)

    assert "unopened group" in LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(lark))


def test_many_functions_with_many_parameters_stay_within_a_grammars_limits() -> None:
    texts = {f"text_{i}": {"type": "string", "description": f"Text {i}."} for i in range(12)}
    numbers = {f"number_{i}": {"type": "integer", "minimum": i} for i in range(4)}
    schema = json.dumps({"type": "object", "properties": texts | numbers})
    functions = [Function(f"function_{i}", schema, strict=True) for i in range(128)]

    lark = QWEN3_CODER.grammar(functions, required=True, parallel=True)

    assert to_lark("ebnf", lark)
    assert ByteMatcher(lark).accepts(
        QWEN3_CODER.syntax.render([("function_99", '{"text_7": "x"}')])
    )
