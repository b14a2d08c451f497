"""What the fields of a chat request are called in the request that it was made from."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from router_svc.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class FieldNames:
    """Chat's field paths to those of a client's request; the longest path that fits decides.

    `names` are those that are the same for every request.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)

    def add(self, chat: str, own: str) -> None:
        """Says what one of chat's fields is made of."""
        self._names[chat] = own

    def of(self, path: str) -> str:
        """The path in the client's request; unchanged where both have the same."""
        end = len(path)
        while end > 0:
            name = self._names.get(path[:end])
            if name is not None:
                return name + path[end:]
            end = max(path.rfind(".", 0, end), path.rfind("[", 0, end))
        return path

    def renamed(self, error: ApiError) -> ApiError:
        """The error as the client understands it: its own field in param and message."""
        if error.param is None or (param := self.of(error.param)) == error.param:
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

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Errors raised within name the client's own fields."""
        try:
            yield
        except ApiError as error:
            raise self.renamed(error) from error
