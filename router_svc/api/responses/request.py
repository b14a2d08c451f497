"""A response's request as the chat request that it stands for, and what an answer repeats of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as chat_pb
from octavo.inference.v1 import responses_pb2 as pb

from router_svc.api.responses.items import messages_of
from router_svc.errors import invalid
from router_svc.gen.inference_validate import validate_create_chat_completion_request

if TYPE_CHECKING:
    from router_svc.api.field_names import FieldNames

CHAT_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "logprobs": "include",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "reasoning_effort": "reasoning.effort",
    "tool_choice.function": "tool_choice",
    "tool_choice.allowed_tools": "tool_choice",
}
"""What chat's fields are made of in every request of a response."""

# Fields that a chat request has under the same name, of the same type and meaning.
_SAME = (
    "model",
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "top_k",
    "min_p",
    "repetition_penalty",
    "seed",
    "chat_template_kwargs",
    "priority",
    "request_id",
    "cache_salt",
)

# Fields of a function's own under the same name.
_TOOL = ("name", "description", "parameters", "strict")

# Fields that the answer repeats as they are, if they were given.
_REPEATED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
)


def chat_request_of(
    request: pb.CreateResponseRequest, names: FieldNames
) -> chat_pb.CreateChatCompletionRequest:
    """The chat request; `names` learns what its fields are made of.

    Raises ApiError, in a response's own names, for what does not fit together.
    """
    chat = chat_pb.CreateChatCompletionRequest(messages=messages_of(request, names))
    for field, value in request.ListFields():
        if field.name in _SAME:
            setattr(chat, field.name, value)
    if request.HasField("max_output_tokens"):
        chat.max_completion_tokens = request.max_output_tokens
    _add_logprobs(request, chat)
    _add_tools(request, chat, names)
    if request.reasoning.HasField("effort"):
        chat.reasoning_effort = request.reasoning.effort
    if request.text.HasField("format"):
        chat.response_format.CopyFrom(_response_format(request.text.format))
    with names.in_errors():
        validate_create_chat_completion_request(chat)
    return chat


def head_of(request: pb.CreateResponseRequest) -> pb.Response:
    """A response that has not begun: what it repeats of its request, or else the defaults."""
    head = pb.Response(
        status=pb.RESPONSE_STATUS_IN_PROGRESS,
        parallel_tool_calls=(
            request.parallel_tool_calls or not request.HasField("parallel_tool_calls")
        ),
        reasoning=request.reasoning,
        text=request.text,
        tool_choice=request.tool_choice,
        tools=request.tools,
        metadata=dict(request.metadata),
    )
    for field, value in request.ListFields():
        if field.name in _REPEATED:
            setattr(head, field.name, value)
    if not head.text.HasField("format"):
        head.text.format.text.SetInParent()
    if head.tool_choice.WhichOneof("kind") is None:
        head.tool_choice.mode = chat_pb.TOOL_CHOICE_MODE_AUTO
    return head


def _add_logprobs(
    request: pb.CreateResponseRequest, chat: chat_pb.CreateChatCompletionRequest
) -> None:
    if pb.RESPONSE_INCLUDABLE_OUTPUT_TEXT_LOGPROBS in request.include:
        chat.logprobs = True
        chat.top_logprobs = request.top_logprobs
    elif request.top_logprobs:
        raise invalid(
            "top_logprobs", 'top_logprobs needs "message.output_text.logprobs" in include'
        )


def _add_tools(
    request: pb.CreateResponseRequest,
    chat: chat_pb.CreateChatCompletionRequest,
    names: FieldNames,
) -> None:
    for i, tool in enumerate(request.tools):
        function = chat.tools.add(type="function").function
        for field, value in tool.function.ListFields():
            if field.name in _TOOL:
                setattr(function, field.name, value)
        names.add(f"tools[{i}].function", f"tools[{i}]")
    match request.tool_choice.WhichOneof("kind"):
        case "mode":
            # Clients send auto and none without tools too, where both say what is so anyway.
            if request.tools or request.tool_choice.mode == chat_pb.TOOL_CHOICE_MODE_REQUIRED:
                chat.tool_choice.mode = request.tool_choice.mode
        case "object":
            _add_tool_choice(request.tool_choice.object, chat.tool_choice.object, names)


def _add_tool_choice(
    choice: pb.ResponseToolChoiceObject, chat: chat_pb.ToolChoiceObject, names: FieldNames
) -> None:
    if choice.WhichOneof("kind") == "function":
        chat.function.function.name = choice.function.name
        return
    allowed = chat.allowed_tools.allowed_tools
    allowed.mode = choice.allowed_tools.mode
    for i, tool in enumerate(choice.allowed_tools.tools):
        allowed.tools.add(type="function", function=chat_pb.FunctionName(name=tool.name))
        for chat_path in ("tool_choice.allowed_tools", "tool_choice.allowed_tools.allowed_tools"):
            names.add(f"{chat_path}.tools[{i}].function", f"tool_choice.tools[{i}]")


def _response_format(wanted: pb.ResponseTextFormat) -> chat_pb.ResponseFormat:
    match wanted.WhichOneof("kind"):
        case "json_schema":
            given = wanted.json_schema
            schema = chat_pb.JsonSchema(name=given.name, schema=given.schema)
            return chat_pb.ResponseFormat(json_schema=chat_pb.JsonSchemaFormat(json_schema=schema))
        case "json_object":
            return chat_pb.ResponseFormat(json_object=chat_pb.JsonObjectFormat())
        case _:
            return chat_pb.ResponseFormat(text=chat_pb.TextFormat())
