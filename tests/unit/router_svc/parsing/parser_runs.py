"""Runs parsers over whole texts and over pieces of them, and reads the calls out of the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from router_svc.parsing.answer import Parts
from router_svc.parsing.formats import ToolFormat
from router_svc.parsing.parts import Content, OutputParser, Part, ToolArguments, ToolCallStart

FUNCTIONS = ("next_bus", "now")


def tool_parser(
    tool_format: ToolFormat,
    functions: Sequence[str] | None = FUNCTIONS,
    *,
    parameters: Mapping[str, str] | None = None,
    parallel: bool = True,
) -> OutputParser:
    return tool_format.new_parser(
        functions,
        parameters=parameters or {},
        parallel=parallel,
        new_id=tool_format.new_ids("request-1", 0),
    )


def parse(parser: OutputParser, pieces: Iterable[str]) -> list[Part]:
    """All parts, neighbours of a kind joined."""
    parts = Parts()
    for piece in pieces:
        for part in parser.feed(piece):
            parts.add(part)
    for part in parser.finish():
        parts.add(part)
    return parts.drain()


def parse_every_way(new_parser: Callable[[], OutputParser], text: str) -> list[Part]:
    """The parts of `text`, which are the same for the whole and for pieces of every small size."""
    whole = parse(new_parser(), [text])
    for size in (1, 2, 3, 5):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert parse(new_parser(), pieces) == whole
    return whole


def calls_of(parts: Iterable[Part]) -> list[tuple[str, str]]:
    """Names and arguments."""
    names: list[str] = []
    arguments: list[str] = []
    for part in parts:
        match part:
            case ToolCallStart(call, _, name):
                assert call == len(names)
                names.append(name)
                arguments.append("")
            case ToolArguments(call, text):
                assert call == len(names) - 1
                arguments[call] += text
    return list(zip(names, arguments, strict=True))


def content_of(parts: Iterable[Part]) -> str:
    return "".join([part.text for part in parts if isinstance(part, Content)])
