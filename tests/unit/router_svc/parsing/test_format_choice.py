"""Which formats a model has, by its template or by flag."""

from __future__ import annotations

import pytest

from router_svc.parsing.formats import (
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    HERMES,
    LLAMA3_JSON,
    MISTRAL_ARRAY,
    MISTRAL_NAMED,
    PYTHONIC,
    QWEN3_CODER,
    ToolFormat,
)
from router_svc.parsing.grammar import Function
from router_svc.parsing.registry import (
    choose_reasoning_format,
    choose_tool_format,
    describe_tools,
    template_knows_tools,
)
from tests.unit.router_svc.text import chat_templates


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ '<tool_call>\\n' }}", HERMES),
        ("{{ '[TOOL_CALLS]' }}", MISTRAL_ARRAY),
        ("{{ '[TOOL_CALLS]' + name + '[ARGS]' }}", MISTRAL_NAMED),
        ("{{ '<|python_tag|>' }}", LLAMA3_JSON),
        ("{{ '[func_name1(params_name1=value1)]' }}", PYTHONIC),
        ("{{ '<｜tool▁calls▁begin｜>' + '```json' }}", DEEPSEEK_V3),
        ("{{ '<｜tool▁calls▁begin｜>' }}", DEEPSEEK_V31),
        (chat_templates.QWEN3_CODER, QWEN3_CODER),
        ("{{ '<function=' + name + '>' + arguments + '</function>' }}", HERMES),
        ("{{ messages }}", HERMES),
    ],
)
def test_a_template_writes_its_format(template: str, expected: ToolFormat) -> None:
    assert choose_tool_format(template, None) is expected


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("hermes", HERMES),
        ("qwen25", HERMES),
        ("llama3_json", LLAMA3_JSON),
        ("pythonic", PYTHONIC),
        ("mistral", MISTRAL_ARRAY),
        ("deepseek_v3", DEEPSEEK_V3),
        ("deepseek_v31", DEEPSEEK_V31),
        ("qwen3_coder", QWEN3_CODER),
        ("qwen3_xml", QWEN3_CODER),
        ("none", None),
    ],
)
def test_a_flag_has_its_way(flag: str, expected: ToolFormat | None) -> None:
    assert choose_tool_format("<tool_call>", flag) is expected


@pytest.mark.parametrize(
    ("template", "flag", "expected"),
    [
        ("{{ '<think>' }}{% if enable_thinking %}", None, "qwen3"),
        ("{{ content.split('</think>') }}", None, "deepseek_r1"),
        ("{{ '[THINK]' }}", None, "mistral"),
        ("{{ messages }}", None, None),
        ("{{ messages }}", "deepseek_r1", "deepseek_r1"),
        ("{{ '<think>' }}", "none", None),
    ],
)
def test_reasoning_by_template_and_flag(
    template: str, flag: str | None, expected: str | None
) -> None:
    chosen = choose_reasoning_format(template, flag)

    assert (chosen and chosen.name) == expected


@pytest.mark.parametrize("choose", [choose_tool_format, choose_reasoning_format])
def test_an_unknown_flag_is_refused_with_the_known_ones(choose) -> None:
    with pytest.raises(ValueError, match=r"'hermez'.*mistral, .*none|'hermez'.*mistral.*none"):
        choose("", "hermez")


def test_a_template_that_knows_tools_names_them() -> None:
    assert template_knows_tools("{% if tools %}{{ tools | tojson }}{% endif %}")
    assert not template_knows_tools("{{ messages[0].content }} has no tool")


@pytest.mark.parametrize("tool_format", [HERMES, MISTRAL_ARRAY, PYTHONIC, QWEN3_CODER])
def test_the_description_of_tools_names_each_and_shows_a_call(tool_format: ToolFormat) -> None:
    schema = '{"type": "object", "properties": {"stop": {"type": "string"}}}'

    text = describe_tools([Function("next_bus", schema, False, "When it leaves.")], tool_format)

    assert "next_bus: When it leaves." in text
    assert schema in text
    assert tool_format.syntax.render([("FUNCTION_NAME", '{"ARGUMENT": "VALUE"}')]) in text
