"""Constraints as llguidance's grammars: what is taken, what is refused, and how that is told."""

from __future__ import annotations

import json

import pytest
from llguidance import LLMatcher, LLTokenizer
from octavo.grammars import (
    MAX_CHOICES_BYTES,
    MAX_TEXT_BYTES,
    explain,
    to_lark,
)
from octavo.lark import GrammarError

BYTES = LLTokenizer("byte")


def accepts(lark: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, lark, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize(
    "text",
    ["a", "two words", 'say "hi"', "back\\slash", "line\nbreak", "\t", "\x01", "\x7f", "żółć",
     "日本", "😀", "a/b", "%x", "#", "// no comment", "\\u0041", "{", " "],
)  # fmt: skip
def test_a_choice_is_taken_to_the_letter(text: str) -> None:
    for lark in (to_lark("choice", "", (text,)), to_lark("choice", "", (f"{text}?", text))):
        assert accepts(lark, text)
        assert not accepts(lark, f"{text}!")


@pytest.mark.parametrize(
    ("regex", "taken", "refused"),
    [
        ("[ab]+", ["a", "abba"], ["", "abc"]),
        ("^[ab]+$", ["a", "abba"], ["", "abc"]),
        (r"\$", ["$"], [""]),
        (r"a\\$", ["a\\"], ["a"]),
        ("a/b", ["a/b"], ["ab"]),
        (r"\d{2}", ["12"], ["1", "٣٤"]),
        ("ż|日本", ["ż", "日本"], ["日"]),
        (".", ["x", "é"], ["\n", "xx"]),
    ],
)
def test_a_regular_expression_matches_the_whole_output(regex, taken, refused) -> None:
    lark = to_lark("regex", regex)

    assert all(accepts(lark, text) for text in taken)
    assert not any(accepts(lark, text) for text in refused)


def test_lark_and_gbnf() -> None:
    lark = to_lark("ebnf", 'start: a+ "."\na: /[0-9]/ | "x" a')
    gbnf = to_lark("ebnf", 'root ::= a+ "."\na ::= [0-9] | "x" a')

    for grammar in (lark, gbnf):
        assert accepts(grammar, "1xx2.")
        assert not accepts(grammar, "x.")


def test_a_schema_takes_one_blank_at_most_between_marks() -> None:
    lark = to_lark("json_schema", '{"type": "array", "items": {"type": "integer"}}')

    for text in ("[]", "[1,2]", "[1, 2]", "[ 1 ,\n2 ]", "[\n]"):
        assert accepts(lark, text)
    for text in ("[  ]", "[1,  2]", "[1,\n 2]", " []", "[] ", "[\t1]", "[\r1]"):
        assert not accepts(lark, text)


def test_structural_tags() -> None:
    tag = {
        "type": "structural_tag",
        "triggers": ["<f"],
        "structures": [
            {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
            {"begin": "<f=b>", "schema": {"type": "boolean"}, "end": ""},
        ],
    }
    lark = to_lark("structural_tag", json.dumps(tag))

    for text in ("", "just text", "x <f=a>12</f> y <f=b>true", "<f=b>false<f=a>1</f>\n"):
        assert accepts(lark, text)
    for text in ("<f", "x <f=c>", "<f=a>true</f>", "<f=a>1", "<f=b>1"):
        assert not accepts(lark, text)


def schema_fault(schema: object) -> str:
    text = json.dumps(schema)
    fault = LLMatcher.validate_grammar(to_lark("json_schema", text))
    assert fault
    return explain(fault, "json_schema", text)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "stsring"}, "at /: Invalid type: stsring"),
        (
            {"properties": {"a": {"items": {"type": "integer", "minimum": "x"}}}},
            "at /properties/a/items: Expected f64 for 'minimum', got \"x\"",
        ),
        (
            {"anyOf": [{}, {"uniqueItems": True}]},
            'at /anyOf/1: Unimplemented keys: ["uniqueItems"]',
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x/y": {"type": "q"}}}}},
            "at /$defs/a/properties/x~1y: Invalid type: q",
        ),
        ({"$ref": "#/nope"}, "at /: Pointer '/nope' does not exist"),
    ],
)
def test_a_fault_is_told_with_its_place(schema, told) -> None:
    assert schema_fault(schema) == told


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("json_schema", "{", "is not JSON"),
        ("json_schema", "true", "must be a JSON object"),
        ("json_schema", " " * (MAX_TEXT_BYTES + 1), f"more than {MAX_TEXT_BYTES}"),
        ("json_schema", '{"properties": {"a": {"minProperties": 2}}}', "at /properties/a/minPro"),
        ("regex", "", "empty"),
        ("regex", "^$", "empty"),
        ("ebnf", "", "empty"),
        ("ebnf", "start: a\n" + "".join(f"r{i}: a\n" for i in range(3000)), "3001 rules"),
        ("ebnf", "root ::= [", "is not GBNF"),
        ("structural_tag", "[]", "must be a JSON object"),
        ("structural_tag", '{"other": 1}', "unknown key 'other'"),
        ("structural_tag", '{"type": "x"}', "type"),
        ("structural_tag", '{"triggers": []}', "triggers"),
        ("structural_tag", '{"triggers": [""]}', "triggers"),
        ("structural_tag", '{"triggers": ["a"], "structures": []}', "structures"),
        (
            "structural_tag",
            '{"triggers": ["a"], "structures": [{"begin": "b", "schema": {}, "end": ""}]}',
            r"structures\[0\]\.begin starts with none",
        ),
        (
            "structural_tag",
            '{"triggers": ["a"], "structures": [{"begin": "a", "schema": 1, "end": ""}]}',
            r"structures\[0\]\.schema: the schema must be",
        ),
        ("other", "", "unknown kind"),
    ],
)
def test_what_is_malformed_is_refused(kind: str, text: str, told: str) -> None:
    with pytest.raises(GrammarError, match=told):
        to_lark(kind, text)


@pytest.mark.parametrize("choices", [(), ("a", ""), ("x" * (MAX_CHOICES_BYTES + 1),)])
def test_bad_choices_are_refused(choices: tuple[str, ...]) -> None:
    with pytest.raises(GrammarError):
        to_lark("choice", "", choices)
