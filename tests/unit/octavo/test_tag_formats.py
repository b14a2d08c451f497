"""Structural tags in their newer form: what each format takes, and what is refused, and where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from octavo.grammars import to_lark
from octavo.lark import GrammarError
from octavo.tag_formats import MAX_DEPTH, MAX_FORMATS

BYTES = LLTokenizer("byte")
Format = dict[str, Any]


def lark_of(form: Any) -> str:
    return to_lark("structural_tag", json.dumps({"type": "structural_tag", "format": form}))


def accepts(lark: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, lark, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def const(value: str) -> Format:
    return {"type": "const_string", "value": value}


def schema(value: Any) -> Format:
    return {"type": "json_schema", "json_schema": value}


def regex(pattern: str) -> Format:
    return {"type": "regex", "pattern": pattern}


def grammar(text: str) -> Format:
    return {"type": "grammar", "grammar": text}


def tag(begin: Any, content: Format, end: Any) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def either(*elements: Format) -> Format:
    return {"type": "or", "elements": list(elements)}


def optional(content: Format) -> Format:
    return {"type": "optional", "content": content}


def repeat(content: Format, low: int, high: int) -> Format:
    return {"type": "repeat", "content": content, "min": low, "max": high}


ANY = {"type": "any_text"}
NUMBER = schema({"type": "integer"})
TRIGGERED = {
    "type": "triggered_tags",
    "triggers": ["<f="],
    "tags": [tag("<f=a>", NUMBER, "</f>"), tag("<f=b>", ANY, "</f>")],
}
LIST = {
    "type": "tags_with_separator",
    "tags": [tag("<i>", NUMBER, "</i>"), tag("<b>", ANY, "</b>")],
    "separator": ",",
}
DISPATCH = {"type": "dispatch", "rules": [["<a>", NUMBER], ["<b>", tag("", ANY, "</b>")]]}


@pytest.mark.parametrize(
    ("form", "taken", "refused"),
    [
        (const("hi"), ["hi"], ["", "h"]),
        (const(""), [""], ["x"]),
        (NUMBER, ["12"], ["x", " 1"]),
        (regex("^[a-z]+$"), ["ab"], ["", "A"]),
        (grammar('root ::= "a" | "b" root'), ["bba"], ["b"]),
        (ANY, ["", "a\nb"], []),
        ({**ANY, "max_chars": 3}, ["", "éé\n"], ["abcd"]),
        ({**ANY, "excludes": ["x", "yz"]}, ["y", "zy"], ["ax", "yz"]),
        (sequence(const("a"), NUMBER, const("!")), ["a1!"], ["a1", "1!"]),
        (sequence(regex("[a-z]+"), const("abc"), NUMBER), ["xabc1", "xabcabc1"], ["abc1"]),
        (sequence(grammar("start: X\nX: /[a-c]+/"), grammar("start: X\nX: /[d-f]+/")),
         ["abde"], ["ab", "de"]),
        (either(const("yes"), const("no")), ["yes", "no"], ["yesno"]),
        (sequence(either(ANY, NUMBER), const(".")), ["x.", "12."], ["x", "x.."]),
        (sequence(optional(const("p: ")), NUMBER), ["1", "p: 1"], ["p: "]),
        ({"type": "star", "content": const("x")}, ["", "xxx"], ["y"]),
        ({"type": "plus", "content": tag("<", ANY, ">")}, ["<><a>"], ["", "<"]),
        (repeat(either(const("x"), const("y")), 1, 3), ["x", "xyx"], ["", "xxxx"]),
        (repeat(const("x"), 0, 0), [""], ["x"]),
        (repeat(const("x"), 2, -1), ["xx", "xxxxx"], ["x"]),
        (tag("<a>", ANY, "</a>"), ["<a></a>", "<a>x\n</a>"], ["<a>", "<a></a>x", "<a></a></a>"]),
        (tag("<a>", ANY, ["</a>", "</b>"]), ["<a>x</b>"], ["<a>x</a></b>"]),
        (tag("<", either(regex("a|b/"), ANY), ["x" * 300, "y" * 300]),
         ["<a" + "x" * 300, "<q" + "y" * 300], ["<a", "<ax"]),
        (tag("<a>", ANY, ""), ["<a>", "<a>x"], ["x"]),
        (tag("<a>", {**ANY, "excludes": ["</a>", "x"]}, "</a>"), ["<a>y</a>"], ["<a>x</a>"]),
        (sequence(tag("<t>", ANY, "</t>"), ANY), ["<t>x</t>", "<t></t></t>"], ["x"]),
        (TRIGGERED, ["", "x", "x<f=a>1</f>y<f=b>q</f>"], ["<f=", "<f=c>", "<f=a>x</f>"]),
        (TRIGGERED | {"at_least_one": True}, ["<f=a>1</f>y<f=b></f>"], ["", "x<f=a>1</f>"]),
        (TRIGGERED | {"stop_after_first": True}, ["x", "x<f=a>1</f>"], ["x<f=a>1</f>y"]),
        (TRIGGERED | {"at_least_one": True, "stop_after_first": True},
         ["<f=a>1</f>"], ["", "x<f=a>1</f>", "<f=a>1</f>y"]),
        (TRIGGERED | {"excludes": ["no"]}, ["n", "x<f=b>no</f>"], ["no", "no<f=a>1</f>"]),
        (tag("<r>", TRIGGERED, "</r>"), ["<r>x</r>", "<r>x<f=b></r></f>y</r>"],
         ["<r>x<f=a>1</f>y", "<r>x</r>y"]),
        (tag("<r>", TRIGGERED | {"stop_after_first": True}, "</r>"),
         ["<r>x</r>", "<r>x<f=a>1</f></r>"], ["<r>x<f=a>1</f>y</r>"]),
        (LIST, ["", "<i>1</i>", "<i>1</i>,<b>,</b>"], ["<i>1</i>,", "x"]),
        (LIST | {"at_least_one": True, "separator": ""}, ["<i>1</i><b></b>"], [""]),
        (LIST | {"stop_after_first": True}, ["", "<i>1</i>"], ["<i>1</i>,<i>1</i>"]),
        (DISPATCH, ["", "x<a>1y<b>q</b>z"], ["<a>x"]),
        (DISPATCH | {"loop": False}, ["", "x<a>1"], ["x<a>1y"]),
    ],
)  # fmt: skip
def test_what_a_format_takes(form: Format, taken: list[str], refused: list[str]) -> None:
    lark = lark_of(form)

    assert [text for text in taken if not accepts(lark, text)] == []
    assert [text for text in refused if accepts(lark, text)] == []


def nested(depth: int) -> Format:
    form: Format = const("x")
    for _ in range(depth):
        form = optional(form)
    return form


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("x", "format must be an object"),
        (
            {"type": "token", "token": 3},
            "format: the format 'token' is not supported; known: ",
        ),
        (sequence(ANY, {"type": "any_tokens"}), "format.elements[1]: the format 'any_tokens'"),
        (tag({"type": "token", "token": 1}, ANY, "x"), "format.begin: the format 'token'"),
        (tag("a", ANY, 1), "format.end must be a text"),
        (tag("a", ANY, ["x", ""]), "format.end must be a text, or several that are not empty"),
        ({"type": "tag", "begin": "a", "end": "b"}, "format.content must be an object"),
        ({**ANY, "max_tokens": 3}, "format.max_tokens is not supported"),
        ({**ANY, "max_chars": -1}, "format.max_chars must be an integer from 0"),
        ({**ANY, "excludes": [""]}, "format.excludes must not hold an empty text"),
        ({**ANY, "more": 1}, "format has the unknown key 'more'"),
        ({**NUMBER, "style": "qwen_xml"}, "format.style: only 'json'"),
        ({**NUMBER, "any_order": True}, "format.any_order is not supported"),
        (optional(schema(True)), "format.content.json_schema: the schema must be a JSON object"),
        (regex("^$"), "format.pattern: must not be empty"),
        (grammar("root ::= ["), "format.grammar: is not GBNF"),
        (either(), "format.elements must be an array"),
        (repeat(const("x"), 3, 1), "format.max is less than min"),
        ({"type": "repeat", "content": const("x"), "min": 1}, "format needs min and max"),
        (sequence(ANY, NUMBER), "format.elements[0]: free text must be followed by a fixed text"),
        ({"type": "star", "content": ANY}, "format.content: free text must be followed"),
        (tag("<a>", sequence(TRIGGERED, NUMBER), "</a>"), "format.content.elements[0]: free text"),
        (
            TRIGGERED | {"triggers": ["<", "<f="]},
            "format.tags[0].begin must start with exactly one",
        ),
        (TRIGGERED | {"triggers": ["<f=", "!"]}, "format.triggers: no tag begins with '!'"),
        (TRIGGERED | {"tags": [ANY]}, "format.tags[0] must be a tag"),
        (TRIGGERED | {"at_least_one": 1}, "format.at_least_one must be true or false"),
        (LIST | {"separator": None}, "format.separator must be a text"),
        (DISPATCH | {"rules": [["<a>"]]}, "format.rules[0] must be a text and a format"),
        (DISPATCH | {"rules": [["a", ANY]]}, "format.rules[0][1]: free text must be followed"),
        (nested(MAX_DEPTH), "is nested more than 32 deep"),
        (sequence(*[const("x")] * MAX_FORMATS), "has more than 512 formats"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_its_place(form: Any, told: str) -> None:
    with pytest.raises(GrammarError) as refused:
        lark_of(form)

    assert told in str(refused.value)


def test_a_regex_that_something_follows_must_be_one_by_itself() -> None:
    lark = lark_of(sequence(regex("a)|(b"), const("!")))

    assert "unopened group" in LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(lark))


def test_the_ends_of_many_branches_are_written_once() -> None:
    ends = [f"</{i}>" for i in range(1_000)]

    lark = lark_of(tag("<a>", either(*[ANY] * 100), ends))

    assert len(lark) < 2 * len(json.dumps(ends))


def test_a_format_excludes_the_older_form() -> None:
    with pytest.raises(GrammarError, match="unknown key 'triggers'"):
        to_lark("structural_tag", json.dumps({"format": ANY, "triggers": ["a"]}))
