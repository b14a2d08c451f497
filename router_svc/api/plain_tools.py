"""Tools for a model whose chat template knows nothing of them: all in plain words.

The tools are described in the system message, with how to call them; calls of earlier turns are
text of the assistant, and their results are what the user says next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from router_svc.parsing.registry import describe_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router_svc.parsing.formats import ToolFormat
    from router_svc.parsing.grammar import Function

Message: TypeAlias = dict[str, Any]


def in_plain_words(
    messages: Sequence[Message],
    functions: Sequence[Function],
    tool_format: ToolFormat,
) -> list[Message]:
    """The conversation without tool_calls and without the role tool."""
    plain: list[Message] = []
    results: Message | None = None  # of the turn before, if that was one of results
    for message in messages:
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            if results is None:
                results = {"role": "user", "content": text}
                plain.append(results)
            else:  # templates want turns to alternate
                results["content"] += "\n" + text
            continue
        results = None
        plain.append(_spoken(message, tool_format) if message.get("tool_calls") else message)
    return _with_system(plain, describe_tools(functions, tool_format)) if functions else plain


def _spoken(message: Message, tool_format: ToolFormat) -> Message:
    calls = [call["function"] for call in message["tool_calls"]]
    text = tool_format.syntax.render((call["name"], call["arguments"]) for call in calls)
    before = f"{message['content']}\n" if message["content"] else ""
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": before + text}


def _with_system(messages: list[Message], text: str) -> list[Message]:
    if messages and messages[0]["role"] in ("system", "developer"):
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
