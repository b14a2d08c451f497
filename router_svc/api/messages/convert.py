"""A Messages request as the chat request that means the same."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from octavo.inference.v1 import inference_pb2 as chat
from octavo.inference.v1 import messages_pb2 as pb

from router_svc.api.field_names import FieldNames
from router_svc.api.messages.turns import Turns
from router_svc.errors import invalid
from router_svc.gen.inference_validate import validate_create_chat_completion_request

_CHAT_NAMES = {
    "stop": "stop_sequences",
    "max_completion_tokens": "max_tokens",
    "tool_choice.function": "tool_choice",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "reasoning_effort": "output_config.effort",
    "include_reasoning": "thinking.display",
    "chat_template_kwargs": "thinking.type",
}

# What has a prompt.
PromptRequest: TypeAlias = pb.CreateMessageRequest | pb.CountMessageTokensRequest

_THINKING = '{"enable_thinking":true}'
_NO_THINKING = '{"enable_thinking":false}'

_EFFORTS = {
    pb.MESSAGE_EFFORT_UNSPECIFIED: chat.REASONING_EFFORT_UNSPECIFIED,
    pb.MESSAGE_EFFORT_LOW: chat.REASONING_EFFORT_LOW,
    pb.MESSAGE_EFFORT_MEDIUM: chat.REASONING_EFFORT_MEDIUM,
    pb.MESSAGE_EFFORT_HIGH: chat.REASONING_EFFORT_HIGH,
    pb.MESSAGE_EFFORT_XHIGH: chat.REASONING_EFFORT_XHIGH,
    pb.MESSAGE_EFFORT_MAX: chat.REASONING_EFFORT_MAX,
}


class Converted(NamedTuple):
    """A chat request, validated, and what its fields are called in the request it was made of."""

    request: chat.CreateChatCompletionRequest
    names: FieldNames


def to_chat(request: PromptRequest) -> Converted:
    """The chat request to answer, or whose prompt to count.

    Raises ApiError, naming the field, for what does not fit together.
    """
    result = chat.CreateChatCompletionRequest()
    turns = _turns_of(request)
    names = FieldNames(_CHAT_NAMES)
    result.messages.extend(turns.messages(names))
    if turns.is_prefilled():
        result.continue_final_message = True
    for i, tool in enumerate(request.tools):
        result.tools.append(_tool(tool.custom))
        names.add(f"tools[{i}].function", f"tools[{i}]")
        names.add(f"tools[{i}].function.parameters", f"tools[{i}].input_schema")
    if request.HasField("tool_choice"):
        _choose_tools(request.tool_choice, result)
    _think(request, result)
    _format(request, result)
    if isinstance(request, pb.CreateMessageRequest):
        _sample(request, result)
    at = "output_format" if request.HasField("output_format") else "output_config.format"
    if result.continue_final_message and result.HasField("response_format"):
        # The format is that of the whole turn, and its beginning is not the model's.
        raise invalid(at, f"{at} and a last turn of the assistant exclude each other")
    names.add("response_format", at)
    names.add("response_format.json_schema", at)
    with names.in_errors():
        validate_create_chat_completion_request(result)
    return Converted(result, names)


def _turns_of(request: PromptRequest) -> Turns:
    turns = Turns()
    if request.HasField("system"):
        turns.add_system(request.system)
    for i, turn in enumerate(request.messages):
        turns.add(turn, f"messages[{i}]")
    return turns


def _sample(request: pb.CreateMessageRequest, result: chat.CreateChatCompletionRequest) -> None:
    result.max_completion_tokens = request.max_tokens
    result.stop.extend(request.stop_sequences)
    if request.HasField("temperature"):
        result.temperature = request.temperature
    if request.HasField("top_p"):
        result.top_p = request.top_p
    if request.HasField("top_k"):
        result.top_k = request.top_k


def _tool(tool: pb.MessageCustomTool) -> chat.Tool:
    function = chat.FunctionDefinition(name=tool.name, parameters=tool.input_schema)
    if tool.HasField("description"):
        function.description = tool.description
    if tool.HasField("strict"):
        function.strict = tool.strict
    return chat.Tool(type="function", function=function)


def _choose_tools(choice: pb.MessageToolChoice, result: chat.CreateChatCompletionRequest) -> None:
    match choice.WhichOneof("kind"):
        case "tool":
            result.tool_choice.object.function.function.name = choice.tool.name
            is_single = choice.tool.disable_parallel_tool_use
        case "any":
            result.tool_choice.mode = chat.TOOL_CHOICE_MODE_REQUIRED
            is_single = choice.any.disable_parallel_tool_use
        case "none":
            result.tool_choice.mode = chat.TOOL_CHOICE_MODE_NONE
            is_single = False
        case _:
            result.tool_choice.mode = chat.TOOL_CHOICE_MODE_AUTO
            is_single = choice.auto.disable_parallel_tool_use
    if is_single:
        result.parallel_tool_calls = False


def _think(request: PromptRequest, result: chat.CreateChatCompletionRequest) -> None:
    thinking = request.thinking
    display = thinking.enabled.display or thinking.adaptive.display
    match thinking.WhichOneof("kind"):
        case "enabled":
            result.chat_template_kwargs = _THINKING
        case "disabled":
            result.chat_template_kwargs = _NO_THINKING
    if display == pb.MESSAGE_THINKING_DISPLAY_OMITTED:
        result.include_reasoning = False
    if request.output_config.effort:
        result.reasoning_effort = _EFFORTS[request.output_config.effort]


def _format(request: PromptRequest, result: chat.CreateChatCompletionRequest) -> None:
    if request.HasField("output_format"):
        if request.output_config.HasField("format"):
            raise invalid("output_format", "output_format and output_config.format are the same")
        format_ = request.output_format
    elif request.output_config.HasField("format"):
        format_ = request.output_config.format
    else:
        return
    result.response_format.json_schema.json_schema.schema = format_.json_schema.schema
