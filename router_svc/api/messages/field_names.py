"""What the fields of a Messages request are called in the chat request that is made of it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
_MESSAGE = re.compile(r"messages\[(\d+)\](\.content$)?")
_FORMAT = re.compile(r"response_format(\.json_schema)?")


class FieldNames:
    """Where the fields of one chat request come from.

    `messages` has a path for each of its messages; `output_format` is that of the answer's format.
    """

    def __init__(self, messages: Sequence[str], output_format: str) -> None:
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
            path = self._messages[int(found[1])]
            return f"{path}.content" if found[2] and path.endswith("]") else path
        if _FORMAT.match(param):
            return _FORMAT.sub(self._output_format, param, count=1)
        for pattern, ours in _BEGINNINGS:
            if pattern.match(param):
                return pattern.sub(ours, param, count=1)
        return param
