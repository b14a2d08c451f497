"""Turns made of blocks, as chat messages.

    user       text blocks ─► one user message      tool_result ─► one tool message each
    assistant  text, thinking and tool_use blocks ─► one assistant message
    system     text blocks ─► one system message

Turns of one speaker that follow each other are one turn, as many templates want turns to alternate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from octavo.inference.v1 import inference_pb2 as chat
from octavo.inference.v1 import messages_pb2 as pb

from router_svc.errors import invalid, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

_BETWEEN_TURNS = "\n\n"

_ROLES = {
    pb.MESSAGE_ROLE_USER: chat.ROLE_USER,
    pb.MESSAGE_ROLE_ASSISTANT: chat.ROLE_ASSISTANT,
    pb.MESSAGE_ROLE_SYSTEM: chat.ROLE_SYSTEM,
}
_BLOCKS_OF = {
    chat.ROLE_USER: ("text", "tool_result"),
    chat.ROLE_ASSISTANT: ("text", "thinking", "redacted_thinking", "tool_use"),
    chat.ROLE_SYSTEM: ("text",),
}

_OnlyText: TypeAlias = pb.MessageSystem | pb.MessageToolResultContent


class _Block(NamedTuple):
    """A block and its path in the request."""

    path: str
    kind: str
    block: pb.MessageBlock


@dataclass(slots=True)
class Turns:
    """The chat messages of a conversation; `paths` has, for each, where it comes from."""

    messages: list[chat.ChatMessage] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    _tools: dict[str, str] = field(default_factory=dict)  # id of a use → name of the tool
    _last_use: str = ""  # path of the last tool_use block

    def add_system(self, system: pb.MessageSystem) -> None:
        """The instructions that frame the conversation; they come first."""
        self._add("system", chat.ChatMessage(role=chat.ROLE_SYSTEM), _text_of(system))

    def add(self, turn: pb.MessageTurn, path: str) -> None:
        """The next turn. Raises ApiError, naming the block, for one that has no place in it."""
        role = _ROLES[turn.role]
        blocks = list(_blocks(turn, path))
        for block in blocks:
            if block.kind not in _BLOCKS_OF[role]:
                raise invalid(
                    f"{block.path}.type",
                    f"a block of the type {block.kind} has no place in a turn of this role;"
                    f" allowed: {', '.join(_BLOCKS_OF[role])}",
                )
        if role == chat.ROLE_ASSISTANT:
            self._add_assistant(blocks, path)
        else:
            self._add_texts(role, blocks, path)

    def is_prefilled(self) -> bool:
        """Whether the conversation ends with a turn of the assistant, which is to be continued.

        Raises ApiError if it uses a tool, whose result would have to come first.
        """
        last = self.messages[-1]
        if last.role == chat.ROLE_ASSISTANT and last.tool_calls:
            raise invalid(self._last_use, "this use of a tool has no tool_result behind it")
        return last.role == chat.ROLE_ASSISTANT

    def _add_texts(self, role: chat.Role.ValueType, blocks: list[_Block], path: str) -> None:
        text: str | None = None
        for block in blocks:
            if block.kind == "tool_result":
                if text is not None:
                    self._add(path, chat.ChatMessage(role=role), text)
                    text = None
                self._add_result(block)
            else:
                text = (text or "") + block.block.text.text
        if text is not None or not blocks:
            self._add(path, chat.ChatMessage(role=role), text or "")

    def _add_result(self, block: _Block) -> None:
        result = block.block.tool_result
        if result.tool_use_id not in self._tools:
            raise invalid(
                f"{block.path}.tool_use_id",
                f"there is no tool_use block of the id {quoted(result.tool_use_id)} before it",
            )
        text = _text_of(result.content)
        if result.is_error:
            text = f"Error: {text}" if text else "Error"
        message = chat.ChatMessage(
            role=chat.ROLE_TOOL,
            tool_call_id=result.tool_use_id,
            name=self._tools[result.tool_use_id],
        )
        self._add(block.path, message, text)

    def _add_assistant(self, blocks: list[_Block], path: str) -> None:
        message = chat.ChatMessage(role=chat.ROLE_ASSISTANT)
        texts, thoughts = [], []
        for block in blocks:
            match block.kind:
                case "text":
                    texts.append(block.block.text.text)
                case "thinking":
                    thoughts.append(block.block.thinking.thinking)
                case "tool_use":
                    use = block.block.tool_use
                    call = chat.FunctionCall(name=use.name, arguments=use.input)
                    message.tool_calls.add(id=use.id, type="function", function=call)
                    self._tools[use.id] = use.name
                    self._last_use = block.path
        if thoughts:
            message.reasoning_content = "".join(thoughts)
        text = "".join(texts)
        # A turn of calls alone has no content, which templates tell from empty content.
        self._add(path, message, None if message.tool_calls and not text else text)

    def _add(self, path: str, message: chat.ChatMessage, text: str | None) -> None:
        if text is not None:
            message.content.text = text
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != message.role or message.role == chat.ROLE_TOOL:
            self.messages.append(message)
            self.paths.append(path)
            return
        if text:
            before = last.content.text
            last.content.text = f"{before}{_BETWEEN_TURNS}{text}" if before else text
        if message.HasField("reasoning_content"):
            last.reasoning_content += message.reasoning_content
        last.tool_calls.extend(message.tool_calls)


def _blocks(turn: pb.MessageTurn, path: str) -> Iterator[_Block]:
    if turn.content.WhichOneof("kind") == "text":
        text = pb.MessageTextBlock(text=turn.content.text)
        yield _Block(f"{path}.content", "text", pb.MessageBlock(text=text))
        return
    for i, block in enumerate(turn.content.blocks.items):
        kind = block.WhichOneof("kind") or ""
        yield _Block(f"{path}.content[{i}]", kind, block)


def _text_of(content: _OnlyText) -> str:
    """All of the text; empty if there is none."""
    if content.WhichOneof("kind") == "text":
        return content.text
    return "".join(block.text.text for block in content.blocks.items)
