"""What a chat request says of tools: which functions there are, and which may or must be called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import orjson
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.errors import invalid
from router_svc.parsing.grammar import Function
from router_svc.structured import check_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,256}")
_NO_ARGUMENTS = '{"type":"object","properties":{}}'


class ToolMode(Enum):
    """Whether functions are called."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"
    NAMED = "named"


_MODES = {
    pb.TOOL_CHOICE_MODE_UNSPECIFIED: ToolMode.AUTO,
    pb.TOOL_CHOICE_MODE_NONE: ToolMode.NONE,
    pb.TOOL_CHOICE_MODE_AUTO: ToolMode.AUTO,
    pb.TOOL_CHOICE_MODE_REQUIRED: ToolMode.REQUIRED,
}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of one request. `callable` are the names that may be called."""

    functions: tuple[pb.FunctionDefinition, ...] = ()
    mode: ToolMode = ToolMode.NONE
    callable: frozenset[str] = frozenset()
    parallel: bool = True

    @property
    def must_call(self) -> bool:
        """Whether the answer is a call, whatever the model would rather do."""
        return self.mode in (ToolMode.REQUIRED, ToolMode.NAMED)

    @property
    def is_strict(self) -> bool:
        """Whether a grammar has to see to the calls."""
        return self.must_call or any(f.strict for f in self.callable_functions)

    @property
    def callable_functions(self) -> tuple[pb.FunctionDefinition, ...]:
        """The functions that may be called."""
        return tuple(f for f in self.functions if f.name in self.callable)

    @property
    def parameters(self) -> dict[str, str]:
        """The JSON schemas of all functions' arguments, by name."""
        return {function.name: parameters_of(function) for function in self.functions}

    def for_template(self) -> list[dict[str, Any]] | None:
        """The functions as chat templates expect them; None if none may be called."""
        if self.mode is ToolMode.NONE:
            return None
        return [_described(function) for function in self.functions]


def tool_use_of(request: pb.CreateChatCompletionRequest) -> ToolUse:
    """The request's tools. Raises ApiError, naming the field, for what does not fit together."""
    functions = tuple(tool.function for tool in request.tools)
    _check_names(functions)
    if not functions:
        if request.HasField("tool_choice"):
            raise invalid("tool_choice", "tool_choice is allowed with tools only")
        return ToolUse()
    mode, callable_names = _choice(request.tool_choice, [f.name for f in functions])
    # Who names a function wants one call of it; a small model would call until its context is full.
    wants_many = request.parallel_tool_calls or not request.HasField("parallel_tool_calls")
    tools = ToolUse(
        functions=functions,
        mode=mode,
        callable=frozenset(callable_names),
        parallel=wants_many and mode is not ToolMode.NAMED,
    )
    for i, function in enumerate(functions):
        if function.name in tools.callable and (tools.must_call or function.strict):
            check_schema(parameters_of(function), f"tools[{i}].function.parameters")
    return tools


def parameters_of(function: pb.FunctionDefinition) -> str:
    """The JSON schema of a function's arguments."""
    return function.parameters if function.HasField("parameters") else _NO_ARGUMENTS


def check_name(name: str, param: str) -> None:
    """Raises ApiError for a name that no function can have."""
    if not _NAME.fullmatch(name):
        raise invalid(param, "a name has letters, digits and . _ : - only, at most 256 of them")


def function_specs(
    functions: Iterable[pb.FunctionDefinition], *, strict: bool = False
) -> list[Function]:
    """The functions as grammars and descriptions take them; all of them strict, or as they say."""
    return [
        Function(
            f.name,
            f.parameters if f.HasField("parameters") else None,
            strict or f.strict,
            f.description,
        )
        for f in functions
    ]


def _described(function: pb.FunctionDefinition) -> dict[str, Any]:
    described: dict[str, Any] = {"name": function.name}
    if function.HasField("description"):
        described["description"] = function.description
    described["parameters"] = orjson.loads(parameters_of(function))
    return {"type": "function", "function": described}


def _check_names(functions: Iterable[pb.FunctionDefinition]) -> None:
    seen = set()
    for i, function in enumerate(functions):
        param = f"tools[{i}].function.name"
        check_name(function.name, param)
        if function.name in seen:
            raise invalid(param, f"there is another function of the name {function.name}")
        seen.add(function.name)


def _choice(choice: pb.ToolChoice, names: list[str]) -> tuple[ToolMode, list[str]]:
    match choice.WhichOneof("kind"):
        case "mode":
            return _MODES[choice.mode], names
        case "object":
            return _chosen(choice.object, names)
        case _:
            return ToolMode.AUTO, names


def _chosen(choice: pb.ToolChoiceObject, names: list[str]) -> tuple[ToolMode, list[str]]:
    if choice.WhichOneof("kind") == "function":
        name = choice.function.function.name
        if name not in names:
            raise invalid("tool_choice.function.name", f"there is no tool of the name {name}")
        return ToolMode.NAMED, [name]
    allowed = choice.allowed_tools.allowed_tools
    at = "tool_choice.allowed_tools"
    for i, tool in enumerate(allowed.tools):
        if tool.function.name not in names:
            raise invalid(
                f"{at}.tools[{i}].function.name",
                f"there is no tool of the name {tool.function.name}",
            )
    if allowed.mode == pb.TOOL_CHOICE_MODE_NONE:
        raise invalid(f"{at}.mode", "must be auto or required")
    mode = ToolMode.REQUIRED if allowed.mode == pb.TOOL_CHOICE_MODE_REQUIRED else ToolMode.AUTO
    return mode, [tool.function.name for tool in allowed.tools]
