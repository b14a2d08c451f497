"""Brings a conversation into the form a chat template expects."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from router_svc.text.template_errors import TemplateFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router_svc.text.template_program import Program

Message = dict[str, Any]


def normalize_messages(messages: Sequence[Message], program: Program) -> list[Message]:
    """Copies of `messages` as `program` expects them.

    - content parts are joined to one text; null is kept only where the template asks for it
    - an empty `tool_calls` is as none; arguments are objects, unless the template joins them to
      text
    - the role developer is system, unless the template knows it
    - keys without a value are absent

    Raises TemplateFailedError for a content part that is no text.
    """
    return [_normalized(i, message, program) for i, message in enumerate(messages)]


def _normalized(index: int, message: Message, program: Program) -> Message:
    result = {key: value for key, value in message.items() if value is not None}
    if result.get("role") == "developer" and not program.knows_developer_role:
        result["role"] = "system"
    if not result.get("tool_calls"):
        result.pop("tool_calls", None)
    elif not program.joins_arguments:
        result["tool_calls"] = [_with_parsed_arguments(call) for call in result["tool_calls"]]
    if "reasoning_content" in result:
        result.setdefault("thinking", result["reasoning_content"])  # gpt-oss' name for it
    result["content"] = _content(index, message.get("content"), program)
    return result


def _content(index: int, content: Any, program: Program) -> str | list[dict[str, str]] | None:
    if content is None:
        if program.tests_null_content:
            return None
        content = ""
    if isinstance(content, list):
        content = "".join(_part_text(index, i, part) for i, part in enumerate(content))
    if program.iterates_content:
        return [{"type": "text", "text": content}]
    return str(content)


def _part_text(index: int, part_index: int, part: Any) -> str:
    match part:
        case str(text) | {"type": "text", "text": str(text)}:
            return text
    raise TemplateFailedError(
        "only content parts of the type text are supported",
        f"messages[{index}].content[{part_index}]",
    )


def _with_parsed_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        # Not orjson: it rounds whole numbers beyond 64 bits.
        arguments = json.loads(
            function["arguments"], parse_constant=_refuse, parse_float=_finite_float
        )
    except (ValueError, RecursionError):
        return call  # what a model wrote need not be JSON; it stays as it was
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value
