"""Turns made of blocks, as chat messages.

    user       text blocks ─► one user message      tool_result ─► one tool message each
    assistant  text, thinking and tool_use blocks ─► one assistant message
    system     text blocks ─► one system message

Turns of one speaker that follow each other are one turn, as many templates want turns to alternate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from octavo.inference.v1 import inference_pb2 as chat
from octavo.inference.v1 import messages_pb2 as pb

from router_svc.errors import invalid, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from router_svc.api.field_names import FieldNames

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
class _Spoken:
    """One chat message in the making, of one or more turns. The last two are a tool's only."""

    role: chat.Role.ValueType
    path: str
    texts: list[str]
    thoughts: list[str] = field(default_factory=list)
    calls: list[chat.ToolCall] = field(default_factory=list)
    call_paths: list[str] = field(default_factory=list)
    tool_use_id: str = ""
    tool_name: str = ""

    def goes_on(self, more: _Spoken) -> bool:
        """Whether `more` belongs to the same message; takes it in then."""
        if self.role != more.role or self.role == chat.ROLE_TOOL:
            return False
        self.texts += more.texts
        self.thoughts += more.thoughts
        self.calls += more.calls
        self.call_paths += more.call_paths
        return True

    def message(self) -> chat.ChatMessage:
        """The message, once all is in."""
        message = chat.ChatMessage(role=self.role, tool_calls=self.calls)
        texts = list(filter(None, self.texts))
        # A turn of calls alone has no content, which templates tell from empty content.
        if texts or not self.calls:
            message.content.text = _BETWEEN_TURNS.join(texts)
        if thoughts := list(filter(None, self.thoughts)):
            message.reasoning_content = _BETWEEN_TURNS.join(thoughts)
        if self.role == chat.ROLE_TOOL:
            message.tool_call_id = self.tool_use_id
            message.name = self.tool_name
        return message

    def name_in(self, names: FieldNames, chat_path: str) -> None:
        """Tells what the message at `chat_path` is made of."""
        names.add(chat_path, self.path)
        if self.path == "system":
            names.add(f"{chat_path}.content", self.path)  # the field is content itself
        names.add(f"{chat_path}.tool_call_id", f"{self.path}.tool_use_id")
        for i, path in enumerate(self.call_paths):
            call = f"{chat_path}.tool_calls[{i}]"
            names.add(call, path)
            names.add(f"{call}.function", path)
            names.add(f"{call}.function.arguments", f"{path}.input")


class Turns:
    """The turns of a conversation, gathered to chat messages."""

    def __init__(self) -> None:
        self._spoken: list[_Spoken] = []
        self._tools: dict[str, str] = {}  # id of a use → name of the tool

    def add_system(self, system: pb.MessageSystem) -> None:
        """The instructions that frame the conversation; they come first."""
        self._add(_Spoken(chat.ROLE_SYSTEM, "system", [_text_of(system)]))

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
            self._add(self._assistant(blocks, path))
            return
        for is_result, group in groupby(blocks, key=lambda block: block.kind == "tool_result"):
            if is_result:
                for block in group:
                    self._add(self._result(block))
            else:
                self._add(_Spoken(role, path, [_joined(group)]))
        if not blocks:
            self._add(_Spoken(role, path, []))

    def is_prefilled(self) -> bool:
        """Whether the conversation ends with a turn of the assistant, which is to be continued.

        Raises ApiError if it uses a tool, whose result would have to come first.
        """
        last = self._spoken[-1]
        if last.role == chat.ROLE_ASSISTANT and last.calls:
            raise invalid(last.call_paths[-1], "this use of a tool has no tool_result behind it")
        return last.role == chat.ROLE_ASSISTANT

    def messages(self, names: FieldNames) -> list[chat.ChatMessage]:
        """The chat messages; `names` learns what each is made of."""
        for i, spoken in enumerate(self._spoken):
            spoken.name_in(names, f"messages[{i}]")
        return [spoken.message() for spoken in self._spoken]

    def _add(self, spoken: _Spoken) -> None:
        if not self._spoken or not self._spoken[-1].goes_on(spoken):
            self._spoken.append(spoken)

    def _result(self, block: _Block) -> _Spoken:
        result = block.block.tool_result
        tool_name = self._tools.get(result.tool_use_id)
        if tool_name is None:
            raise invalid(
                f"{block.path}.tool_use_id",
                f"there is no tool_use block of the id {quoted(result.tool_use_id)} before it",
            )
        text = _text_of(result.content)
        if result.is_error:
            text = f"Error: {text}" if text else "Error"
        return _Spoken(
            chat.ROLE_TOOL,
            block.path,
            [text],
            tool_use_id=result.tool_use_id,
            tool_name=tool_name,
        )

    def _assistant(self, blocks: Sequence[_Block], path: str) -> _Spoken:
        thought = "".join(block.block.thinking.thinking for block in blocks)
        spoken = _Spoken(chat.ROLE_ASSISTANT, path, [_joined(blocks)], [thought])
        for block in blocks:
            if block.kind == "tool_use":
                use = block.block.tool_use
                call = chat.FunctionCall(name=use.name, arguments=use.input)
                spoken.calls.append(chat.ToolCall(id=use.id, type="function", function=call))
                self._tools[use.id] = use.name
                spoken.call_paths.append(block.path)
        return spoken


def _joined(blocks: Iterable[_Block]) -> str:
    """The texts among the blocks; other kinds have none."""
    return "".join(block.block.text.text for block in blocks)


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
