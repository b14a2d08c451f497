"""A response's input items as the messages of a chat.

Reasoning, what the assistant says and its calls are items of their own; in a chat they are one
message, as a template renders one turn:

    reasoning │ message │ function_call │ function_call │ function_call_output
    └────────────── assistant ──────────────────────────┘└─ tool ────────────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as chat_pb
from octavo.inference.v1 import responses_pb2 as pb

from router_svc.errors import invalid, quoted

if TYPE_CHECKING:
    from router_svc.api.field_names import FieldNames

_ROLES = {
    pb.RESPONSE_ROLE_USER: chat_pb.ROLE_USER,
    pb.RESPONSE_ROLE_ASSISTANT: chat_pb.ROLE_ASSISTANT,
    pb.RESPONSE_ROLE_SYSTEM: chat_pb.ROLE_SYSTEM,
    pb.RESPONSE_ROLE_DEVELOPER: chat_pb.ROLE_DEVELOPER,
}


def messages_of(request: pb.CreateResponseRequest, names: FieldNames) -> list[chat_pb.ChatMessage]:
    """The chat's messages; `names` learns what each is made of.

    Raises ApiError for an output of a call that was never made.
    """
    conversation = _Conversation(names)
    if request.HasField("instructions"):
        conversation.say(chat_pb.ROLE_SYSTEM, _text(request.instructions), "instructions", "")
    if request.input.WhichOneof("kind") == "text":
        conversation.say(chat_pb.ROLE_USER, _text(request.input.text), "input", "")
    for i, item in enumerate(request.input.items.items):
        conversation.add(item, f"input[{i}]")
    return conversation.messages


class _Conversation:
    """Messages so far. The assistant's last turn is open until somebody else speaks."""

    def __init__(self, names: FieldNames) -> None:
        self.messages: list[chat_pb.ChatMessage] = []
        self._names = names
        self._turn: chat_pb.ChatMessage | None = None
        self._reasoning = ""  # of the turn that has not begun
        self._calls: set[str] = set()

    def add(self, item: pb.ResponseInputItem, path: str) -> None:
        """Adds an item, which is at this path of the request."""
        match item.WhichOneof("kind"):
            case "message":
                content = _content(item.message.content)
                self.say(_ROLES[item.message.role], content, path, ".content")
            case "function_call":
                self._call(item.function_call, path)
            case "function_call_output":
                self._output(item.function_call_output, path)
            case _:
                self._turn = None
                self._reasoning += _reasoning_text(item.reasoning)

    def say(
        self, role: chat_pb.Role.ValueType, content: chat_pb.MessageContent, path: str, field: str
    ) -> None:
        """Adds what somebody says; the content is the field at `path`."""
        message = self._begin_turn() if role == chat_pb.ROLE_ASSISTANT else self._begin(role)
        message.content.CopyFrom(content)
        self._name(path)
        self._name(path + field, ".content")

    def _call(self, call: pb.ResponseInputFunctionCall, path: str) -> None:
        turn = self._turn
        if turn is None:
            turn = self._begin_turn()
            self._name(path)
        if call.call_id in self._calls:
            raise invalid(
                f"{path}.call_id", f"there is another call with the id {quoted(call.call_id)}"
            )
        self._calls.add(call.call_id)
        at = f".tool_calls[{len(turn.tool_calls)}]"
        function = chat_pb.FunctionCall(name=call.name, arguments=call.arguments)
        turn.tool_calls.add(id=call.call_id, type="function", function=function)
        self._name(path, at)
        self._name(path, f"{at}.function")
        self._name(f"{path}.call_id", f"{at}.id")

    def _output(self, output: pb.ResponseFunctionCallOutput, path: str) -> None:
        if output.call_id not in self._calls:
            raise invalid(
                f"{path}.call_id",
                f"no function_call before this item has the call_id {quoted(output.call_id)}",
            )
        message = self._begin(chat_pb.ROLE_TOOL)
        message.tool_call_id = output.call_id
        message.content.CopyFrom(_content(output.output))
        self._name(path)
        self._name(f"{path}.output", ".content")
        self._name(f"{path}.call_id", ".tool_call_id")

    def _begin(self, role: chat_pb.Role.ValueType) -> chat_pb.ChatMessage:
        self._turn = None
        self._reasoning = ""
        self.messages.append(chat_pb.ChatMessage(role=role))
        return self.messages[-1]

    def _begin_turn(self) -> chat_pb.ChatMessage:
        reasoning = self._reasoning
        turn = self._begin(chat_pb.ROLE_ASSISTANT)
        if reasoning:
            turn.reasoning_content = reasoning
        self._turn = turn
        return turn

    def _name(self, path: str, field: str = "") -> None:
        self._names.add(f"messages[{len(self.messages) - 1}]{field}", path)


def _text(text: str) -> chat_pb.MessageContent:
    return chat_pb.MessageContent(text=text)


def _content(content: pb.ResponseInputContent) -> chat_pb.MessageContent:
    if content.WhichOneof("kind") == "text":
        return _text(content.text)
    parts = chat_pb.ContentParts()
    for part in content.parts.items:
        match part.WhichOneof("kind"):
            case "input_text":
                text = part.input_text.text
            case "output_text":
                text = part.output_text.text
            case _:
                text = part.refusal.refusal
        parts.items.add(text=chat_pb.TextPart(text=text))
    return chat_pb.MessageContent(parts=parts)


def _reasoning_text(reasoning: pb.ResponseInputReasoning) -> str:
    if reasoning.content:
        return "".join(part.text for part in reasoning.content)
    return "\n\n".join(part.text for part in reasoning.summary)
