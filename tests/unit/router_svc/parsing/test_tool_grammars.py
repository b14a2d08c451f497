"""What grammars of calls let a model write, and that the parsers read that as the calls it is."""

from __future__ import annotations

import json

import pytest
from byte_matcher import ByteMatcher, control_ids
from jsonschema import validate
from llguidance import LLMatcher
from parser_runs import calls_of, content_of, parse, tool_parser

from router_svc.parsing.formats import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    HERMES,
    LLAMA3_JSON,
    MISTRAL_ARRAY,
    MISTRAL_NAMED,
    PYTHONIC,
    QWEN3_CODER,
    REASONING_FORMATS,
    ToolFormat,
)
from router_svc.parsing.grammar import Function, with_reasoning

FORMATS = {
    "hermes": HERMES,
    "llama3_json": LLAMA3_JSON,
    "mistral": MISTRAL_ARRAY,
    "mistral_named": MISTRAL_NAMED,
    "pythonic": PYTHONIC,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v31": DEEPSEEK_V31,
    "qwen3_coder": QWEN3_CODER,
}
BUS_SCHEMA = {
    "type": "object",
    "properties": {
        "stop": {"$ref": "#/$defs/stop"},
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "when": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "boolean"}}]},
    },
    "required": ["stop"],
    "additionalProperties": False,
    "$defs": {"stop": {"type": "string", "maxLength": 8}},
}
BUS_TEXT = json.dumps(BUS_SCHEMA)
BUS = Function("next_bus", BUS_TEXT, strict=True)
NOW = Function("now")
ANY = Function("anything", '{"type": "object", "properties": {"a": {"type": "integer"}}}')

ONE = [("next_bus", '{"stop": "Zoo", "n": 2}')]
TWO = [*ONE, ("now", "{}")]
THINK = REASONING_FORMATS["qwen3"]


def matcher_of(
    tool_format: ToolFormat,
    *,
    required: bool,
    parallel: bool = True,
    control: bool = False,
    functions: tuple[Function, ...] = (BUS, NOW),
    opened: bool | None = None,
) -> ByteMatcher:
    """`control`: the format's markers are control tokens. `opened`: whether reasoning is."""
    tokens = (*tool_format.markers, *(THINK.markers if opened is not None else ()))
    grammar = tool_format.grammar(
        functions,
        required=required,
        parallel=parallel,
        special_tokens=control_ids(tokens) if control else {},
        reasoning=None if opened is None else THINK.tags(opened=opened),
    )
    assert LLMatcher.validate_grammar(grammar) == ""
    return ByteMatcher(grammar, tokens if control else ())


every_format = pytest.mark.parametrize("tool_format", FORMATS.values(), ids=FORMATS)
with_and_without_control_tokens = pytest.mark.parametrize("control", [True, False])


@every_format
@with_and_without_control_tokens
def test_a_required_answer_is_calls_and_nothing_else(
    tool_format: ToolFormat, control: bool
) -> None:
    matcher = matcher_of(tool_format, required=True, control=control)
    one, two = tool_format.syntax.render(ONE), tool_format.syntax.render(TWO)

    assert matcher.accepts(one)
    assert matcher.accepts(two)
    assert not matcher.accepts("")
    assert not matcher.begins("Hello")
    assert not matcher.begins(f"{one} Hello")


@every_format
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("no_such", "{}"),
        ("next_bus", "{}"),
        ("next_bus", '{"stop": "Zoologischer Garten"}'),
        ("next_bus", '{"stop": "Zoo", "n": 10}'),
        ("next_bus", '{"stop": "Zoo", "other": 1}'),
        ("now", '{"a": 1}'),
    ],
)
def test_a_required_call_is_of_an_offered_function_and_its_arguments_fit(
    tool_format: ToolFormat, name: str, arguments: str
) -> None:
    matcher = matcher_of(tool_format, required=True)

    assert not matcher.accepts(tool_format.syntax.render([(name, arguments)]))


@every_format
@with_and_without_control_tokens
def test_without_parallel_calls_one_call_ends_the_answer(
    tool_format: ToolFormat, control: bool
) -> None:
    for required in (True, False):
        matcher = matcher_of(tool_format, required=required, parallel=False, control=control)

        assert matcher.accepts(tool_format.syntax.render(ONE))
        assert not matcher.begins(tool_format.syntax.render(TWO))


@every_format
@with_and_without_control_tokens
def test_an_answer_that_may_call_is_free_text_with_well_formed_calls(
    tool_format: ToolFormat, control: bool
) -> None:
    matcher = matcher_of(tool_format, required=False, control=control)
    two = tool_format.syntax.render(TWO)

    assert matcher.accepts("")
    assert matcher.accepts('Hello!\n{"a": [1]} [link](now)')
    assert matcher.accepts(two)
    assert matcher.accepts(f"One moment…\n{two}\nAnd again:\n{two}")
    assert not matcher.begins("So:\n" + tool_format.syntax.render([("next_bus", '{"other": 1}')]))


@pytest.mark.parametrize(
    ("tool_format", "begun"),
    [
        (HERMES, "<tool_call>\nHm"),
        (HERMES, '<tool_call>\n{"name": "no_such"'),
        (MISTRAL_ARRAY, "[TOOL_CALLS]no"),
        (MISTRAL_NAMED, "[TOOL_CALLS]no_such"),
        (DEEPSEEK_V3, "<｜tool▁calls▁begin｜>Hm"),
        (LLAMA3_JSON, '{ "name": "now", "arg'),
        (PYTHONIC, "Now:\n[next_bus(other"),
        (QWEN3_CODER, "<tool_call>\n<function=no_such"),
        (QWEN3_CODER, "<function=next_bus>\n<parameter=other"),
    ],
)
def test_what_begins_as_a_call_goes_on_as_one(tool_format: ToolFormat, begun: str) -> None:
    assert not matcher_of(tool_format, required=False).begins(begun)


@every_format
@with_and_without_control_tokens
@pytest.mark.parametrize("required", [True, False])
def test_reasoning_comes_before_calls(
    tool_format: ToolFormat, control: bool, required: bool
) -> None:
    call = tool_format.syntax.render(ONE)
    opened = matcher_of(tool_format, required=required, control=control, opened=True)
    not_opened = matcher_of(tool_format, required=required, control=control, opened=False)

    assert opened.accepts(f"Hm, so.\n</think>\n\n{call}")
    assert not opened.accepts("Hm, so.")
    assert not_opened.accepts(f"<think>\nHm, so.\n</think>\n\n{call}")
    assert not_opened.accepts(call)
    assert not_opened.accepts("Hm, so.") is not required


@every_format
@pytest.mark.parametrize("parallel", [True, False])
def test_what_a_grammar_lets_a_model_write_is_read_as_calls_that_fit(
    tool_format: ToolFormat, parallel: bool
) -> None:
    matcher = matcher_of(tool_format, required=True, parallel=parallel)
    schemas = {
        "next_bus": BUS_SCHEMA,
        "now": {"type": "object", "additionalProperties": False},
    }

    for seed in range(10):
        text = matcher.write(seed)
        parts = parse(tool_parser(tool_format, parameters={"next_bus": BUS_TEXT}), [text])
        calls = calls_of(parts)

        assert matcher.accepts(text)
        assert calls, text
        assert len(calls) == 1 or parallel
        assert content_of(parts) == ""
        for name, arguments in calls:
            validate(json.loads(arguments), schemas[name])


def test_white_space_is_bounded() -> None:
    matcher = matcher_of(HERMES, required=True)
    begin = '<tool_call>\n{"name": "next_bus", "arguments": {"stop":'

    assert matcher.begins(begin + " ")
    assert not matcher.begins(begin + "  ")


def test_arguments_of_functions_that_are_not_strict_are_any_object_if_calls_are_not_required() -> (
    None
):
    free = matcher_of(HERMES, required=False, functions=(ANY,))
    must = matcher_of(HERMES, required=True, functions=(ANY,))
    odd = HERMES.syntax.render([("anything", '{"a": "text"}')])

    assert free.accepts(odd)
    assert not must.accepts(odd)


def test_pythonic_calls_without_a_schema_have_any_keywords() -> None:
    free = Function("f", '{"type": "object"}', strict=True)
    none = Function("g", '{"type": "object", "properties": {}}', strict=True)
    matcher = matcher_of(PYTHONIC, required=True, functions=(free, none))

    assert matcher.accepts("[f(), g()]")
    assert matcher.accepts('[f(a=1, b=[true, {"c": null}])]')
    assert not matcher.begins("[g(a")


@pytest.mark.parametrize(
    ("tool_format", "function"),
    [
        (HERMES, Function("f", "[]")),
        (MISTRAL_NAMED, Function("two words")),
        (PYTHONIC, Function("f", '{"properties": {"two words": {}}}')),
        (PYTHONIC, Function("f", '{"anyOf": [{"type": "object"}]}', strict=True)),
        (QWEN3_CODER, Function("f", '{"properties": {"<a>": {}}}')),
        (QWEN3_CODER, Function("f", '{"anyOf": [{"type": "object"}]}', strict=True)),
        (
            HERMES,
            Function("f", '{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}', strict=True),
        ),
    ],
)
def test_a_function_that_no_grammar_can_be_made_of_is_named(
    tool_format: ToolFormat, function: Function
) -> None:
    with pytest.raises(ValueError, match=f"^function '{function.name}': "):
        tool_format.grammar([function], required=True, parallel=True)


def test_a_wanted_form_may_follow_reasoning_too() -> None:
    matcher = ByteMatcher(with_reasoning(['answer: "yes" | "no"'], THINK.tags(opened=True)))

    assert matcher.accepts("yes or no?</think>\nno")
    assert not matcher.accepts("no")
