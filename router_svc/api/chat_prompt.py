"""From a chat request's messages, tools and template settings to the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api.plain_tools import in_plain_words
from router_svc.api.tooling import check_name, function_specs
from router_svc.errors import invalid

if TYPE_CHECKING:
    from router_svc.api.tooling import ToolUse
    from router_svc.served_model import ChatPrompt, ServedModel

_Message: TypeAlias = dict[str, Any]
_RenderedRequest: TypeAlias = pb.CreateChatCompletionRequest | pb.TokenizeRequest

_ROLES = {
    pb.ROLE_SYSTEM: "system",
    pb.ROLE_DEVELOPER: "developer",
    pb.ROLE_USER: "user",
    pb.ROLE_ASSISTANT: "assistant",
    pb.ROLE_TOOL: "tool",
}


async def chat_prompt(request: _RenderedRequest, model: ServedModel, tools: ToolUse) -> ChatPrompt:
    """The rendered conversation. Raises ApiError, naming the field, for a bad one."""
    messages = [_message(i, message) for i, message in enumerate(request.messages)]
    continue_final = request.continue_final_message
    add_generation_prompt = (
        request.add_generation_prompt
        if request.HasField("add_generation_prompt")
        else not continue_final
    )
    if continue_final and add_generation_prompt:
        raise invalid(
            "continue_final_message",
            "continue_final_message and add_generation_prompt exclude each other",
        )
    described = tools.for_template()
    formats = model.formats
    if formats.tools is not None and not formats.template_knows_tools:
        functions = function_specs(tools.functions) if described else []
        messages = in_plain_words(messages, functions, formats.tools)
        described = None
    return await model.chat_prompt(
        messages,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final,
        add_special_tokens=request.add_special_tokens,
        variables=_template_variables(request),
        tools=described,
        documents=_documents(request),
    )


def _message(index: int, message: pb.ChatMessage) -> _Message:
    where = f"messages[{index}]"
    if message.role == pb.ROLE_UNSPECIFIED:
        raise invalid(f"{where}.role", "role is required")
    result: _Message = {"role": _ROLES[message.role], "content": _content(message)}
    if result["content"] is None and message.role != pb.ROLE_ASSISTANT:
        raise invalid(f"{where}.content", f"content is required for the role {result['role']}")
    if message.HasField("name"):
        result["name"] = message.name
    if message.tool_calls:
        for i, call in enumerate(message.tool_calls):
            check_name(call.function.name, f"{where}.tool_calls[{i}].function.name")
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    if message.HasField("tool_call_id"):
        result["tool_call_id"] = message.tool_call_id
    if message.HasField("reasoning_content"):
        result["reasoning_content"] = message.reasoning_content
    return result


def _content(message: pb.ChatMessage) -> str | None:
    match message.content.WhichOneof("kind"):
        case "text":
            return message.content.text
        case "parts":
            return "".join(part.text.text for part in message.content.parts.items)
        case _:
            return message.refusal if message.HasField("refusal") else None


def _template_variables(request: _RenderedRequest) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    if isinstance(request, pb.CreateChatCompletionRequest) and request.reasoning_effort:
        effort = pb.ReasoningEffort.Name(request.reasoning_effort)
        variables["reasoning_effort"] = effort.removeprefix("REASONING_EFFORT_").lower()
        variables["enable_thinking"] = request.reasoning_effort != pb.REASONING_EFFORT_NONE
    if request.HasField("chat_template_kwargs"):
        try:
            own = orjson.loads(request.chat_template_kwargs)
        except orjson.JSONDecodeError as error:
            raise invalid("chat_template_kwargs", "not valid JSON") from error
        if not isinstance(own, dict):
            raise invalid("chat_template_kwargs", "must be an object")
        variables |= own
    return variables


def _documents(request: _RenderedRequest) -> list[dict[str, Any]] | None:
    if not isinstance(request, pb.CreateChatCompletionRequest) or not request.documents:
        return None
    return [orjson.loads(document) for document in request.documents]
