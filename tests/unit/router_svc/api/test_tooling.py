"""What a request says of tools, and what of it does not fit together."""

from __future__ import annotations

from typing import Any

import pytest
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api.tooling import ToolMode, ToolUse, tool_use_of
from router_svc.errors import ApiError


def tool(name: str, parameters: str | None = None, *, strict: bool | None = None) -> pb.Tool:
    function = pb.FunctionDefinition(name=name, parameters=parameters, strict=strict)
    return pb.Tool(type="function", function=function)


def named(name: str) -> pb.ToolChoice:
    choice = pb.NamedToolChoice(function=pb.FunctionName(name=name))
    return pb.ToolChoice(object=pb.ToolChoiceObject(function=choice))


def allowed(mode: int, *names: str) -> pb.ToolChoice:
    tools = [pb.AllowedTool(function=pb.FunctionName(name=name)) for name in names]
    choice = pb.AllowedToolsChoice(allowed_tools=pb.AllowedTools(mode=mode, tools=tools))
    return pb.ToolChoice(object=pb.ToolChoiceObject(allowed_tools=choice))


def use_of(*tools: pb.Tool, **fields: Any) -> ToolUse:
    return tool_use_of(pb.CreateChatCompletionRequest(tools=tools, **fields))


def refusal(*tools: pb.Tool, **fields: Any) -> str:
    with pytest.raises(ApiError) as caught:
        use_of(*tools, **fields)
    assert caught.value.param is not None
    return caught.value.param


def test_without_tools_nothing_is_called() -> None:
    assert use_of().mode is ToolMode.NONE


def test_with_tools_the_model_decides_unless_the_request_does() -> None:
    assert use_of(tool("f")).mode is ToolMode.AUTO


@pytest.mark.parametrize(
    ("choice", "mode", "must_call"),
    [
        (pb.TOOL_CHOICE_MODE_NONE, ToolMode.NONE, False),
        (pb.TOOL_CHOICE_MODE_AUTO, ToolMode.AUTO, False),
        (pb.TOOL_CHOICE_MODE_REQUIRED, ToolMode.REQUIRED, True),
    ],
)
def test_a_mode_holds_for_all_tools(choice: int, mode: ToolMode, must_call: bool) -> None:
    use = use_of(tool("f"), tool("g"), tool_choice=pb.ToolChoice(mode=choice))

    assert (use.mode, use.must_call, use.callable) == (mode, must_call, {"f", "g"})


def test_a_named_tool_is_the_only_one_that_is_called() -> None:
    use = use_of(tool("f"), tool("g"), tool_choice=named("g"))

    assert (use.mode, use.must_call, use.callable) == (ToolMode.NAMED, True, {"g"})


def test_a_named_tool_is_called_once() -> None:
    assert not use_of(tool("f"), tool_choice=named("f"), parallel_tool_calls=True).parallel
    assert use_of(tool("f")).parallel
    assert not use_of(tool("f"), parallel_tool_calls=False).parallel


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (pb.TOOL_CHOICE_MODE_AUTO, ToolMode.AUTO),
        (pb.TOOL_CHOICE_MODE_REQUIRED, ToolMode.REQUIRED),
    ],
)
def test_allowed_tools_are_shown_to_the_model_with_the_others(
    mode: int, expected: ToolMode
) -> None:
    use = use_of(tool("f"), tool("g"), tool_choice=allowed(mode, "g"))

    assert (use.mode, use.callable) == (expected, {"g"})
    shown = use.for_template()
    assert shown is not None
    assert [each["function"]["name"] for each in shown] == ["f", "g"]


def test_the_template_gets_an_empty_schema_for_a_function_without_parameters() -> None:
    shown = use_of(tool("f")).for_template()

    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    assert shown == [{"type": "function", "function": function}]


def test_tools_that_must_not_be_called_are_not_shown() -> None:
    choice = pb.ToolChoice(mode=pb.TOOL_CHOICE_MODE_NONE)

    assert use_of(tool("f"), tool_choice=choice).for_template() is None


def test_a_schema_is_checked_only_where_a_grammar_is_made_of_it() -> None:
    unsupported = '{"type":"object","not":{"type":"null"}}'

    assert not use_of(tool("f", unsupported)).is_strict
    at = "tools[0].function.parameters"
    assert refusal(tool("f", unsupported, strict=True)) == at
    assert refusal(tool("f", unsupported), tool_choice=named("f")) == at


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([], pb.ToolChoice(mode=pb.TOOL_CHOICE_MODE_AUTO), "tool_choice"),
        ([], named("f"), "tool_choice"),
        ([tool("f")], named("g"), "tool_choice.function.name"),
        (
            [tool("f")],
            allowed(pb.TOOL_CHOICE_MODE_AUTO, "f", "g"),
            "tool_choice.allowed_tools.tools[1].function.name",
        ),
        (
            [tool("f")],
            allowed(pb.TOOL_CHOICE_MODE_NONE, "f"),
            "tool_choice.allowed_tools.mode",
        ),
        ([tool("f"), tool("f")], None, "tools[1].function.name"),
        ([tool("a b")], None, "tools[0].function.name"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(
    tools: list[pb.Tool], choice: pb.ToolChoice | None, param: str
) -> None:
    assert refusal(*tools, tool_choice=choice) == param
