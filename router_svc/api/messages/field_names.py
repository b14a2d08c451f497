"""What the fields of a Messages request are called in the chat request that is made of it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from router_svc.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The beginning of chat's path of a field → that of ours; the first that fits.
_BEGINNINGS = (
    (re.compile(r"stop(?=$|\[)"), "stop_sequences"),
    (re.compile(r"max_completion_tokens$"), "max_tokens"),
    (re.compile(r"tools\[(\d+)\]\.function\.parameters"), r"tools[\1].input_schema"),
    (re.compile(r"tools\[(\d+)\]\.function"), r"tools[\1]"),
    (re.compile(r"tool_choice\.function"), "tool_choice"),
    (re.compile(r"parallel_tool_calls"), "tool_choice.disable_parallel_tool_use"),
    (re.compile(r"reasoning_effort"), "output_config.effort"),
    (re.compile(r"include_reasoning"), "thinking.display"),
    (re.compile(r"chat_template_kwargs(\.enable_thinking)?"), "thinking.type"),
)
_MESSAGE = re.compile(r"messages\[(\d+)\](.*)")
_CALL = re.compile(r"\.tool_calls\[(\d+)\](.*)")
_CALL_FIELDS = {".id": ".id", ".function.name": ".name", ".function.arguments": ".input"}
_FORMAT = re.compile(r"response_format(\.json_schema)?")


class Origin(NamedTuple):
    """Where a chat message comes from: the path of a turn or block, and of each of its calls."""

    path: str
    calls: Sequence[str] = ()


class FieldNames:
    """Where the fields of one chat request come from; `output_format` is the answer's format."""

    def __init__(self, messages: Sequence[Origin], output_format: str) -> None:
        self._messages = messages
        self._output_format = output_format

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Errors raised within name the request's own fields."""
        try:
            yield
        except ApiError as error:
            raise self.renamed(error) from error

    def renamed(self, error: ApiError) -> ApiError:
        """The error with the request's own field in param and message."""
        if error.param is None or (param := self.of(error.param)) == error.param:
            return error
        return ApiError(
            error.kind,
            error.message.replace(error.param, param),
            param=param,
            code=error.code,
            retry_after=error.retry_after,
        )

    def of(self, param: str) -> str:
        """The request's path of what chat calls `param`."""
        if found := _MESSAGE.match(param):
            return self._of_message(int(found[1]), found[2])
        if _FORMAT.match(param):
            return _FORMAT.sub(self._output_format, param, count=1)
        for pattern, ours in _BEGINNINGS:
            if pattern.match(param):
                return pattern.sub(ours, param, count=1)
        return param

    def _of_message(self, index: int, rest: str) -> str:
        if index >= len(self._messages):
            return "messages"  # one that a template's rules made
        origin = self._messages[index]
        if found := _CALL.match(rest):
            return origin.calls[int(found[1])] + _CALL_FIELDS.get(found[2], "")
        has_content = origin.path.endswith("]")  # unlike the system prompt, which is content
        return f"{origin.path}.content" if rest == ".content" and has_content else origin.path
