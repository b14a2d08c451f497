"""What a chat request's fields are called in the request of a response that it was made from."""

from __future__ import annotations

from router_svc.errors import ApiError


class FieldNames:
    """Chat's field paths to those of a response's request; the longest path that fits decides."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {
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

    def add(self, chat: str, response: str) -> None:
        """Says what one of chat's fields is made of."""
        self._names[chat] = response

    def of(self, path: str) -> str:
        """The path in the response's request; unchanged where both have the same."""
        end = len(path)
        while end > 0:
            name = self._names.get(path[:end])
            if name is not None:
                return name + path[end:]
            end = max(path.rfind(".", 0, end), path.rfind("[", 0, end))
        return path

    def renamed(self, error: ApiError) -> ApiError:
        """The error as a client of responses understands it."""
        if error.param is None:
            return error
        param = self.of(error.param)
        if param == error.param:
            return error
        message = error.message
        if message.startswith(error.param):
            message = param + message.removeprefix(error.param)
        return ApiError(
            error.kind,
            message,
            param=param,
            code=error.code,
            retry_after=error.retry_after,
        )
