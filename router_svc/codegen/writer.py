"""Lines of Python with the right indentation; ruff format does the rest."""

import json
from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Collects lines of generated Python."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        """Adds one line at the current indentation."""
        self._lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Adds a line and indents what follows."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def docstring(self, text: str) -> None:
        """Adds a docstring, with quotes and backslashes of the comment escaped."""
        lines = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').splitlines()
        if len(lines) <= 1:
            self.line(f'"""{lines[0] if lines else ""}"""')
            return
        self.line(f'"""{lines[0]}')
        for line in lines[1:]:
            self.line(line)
        self.line('"""')

    def text(self) -> str:
        """Everything so far."""
        return "\n".join(self._lines) + "\n"


def literal(value: object) -> str:
    """A string, number or boolean as Python source."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def number(value: float) -> str:
    """A bound as Python source, whole numbers without a fraction."""
    return str(int(value)) if value == int(value) else repr(value)


def first_line(comment: str, name: str) -> str:
    """The comment's first line for a docstring, or the name of what has no comment."""
    return comment.splitlines()[0] if comment else f"{name}."


def tuple_of(items: list[str]) -> str:
    """A tuple of source snippets, with the comma that a single one needs."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
