"""Calls as DeepSeek V3 and R1 write them, and as V3.1 does."""

from __future__ import annotations

import pytest
from parser_runs import calls_of, content_of, parse_every_way, tool_parser

from router_svc.parsing.formats import DEEPSEEK_V3
from router_svc.parsing.parts import Content, Part, ToolArguments

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


def v3(name: str, arguments: str) -> str:
    return f"{CALL}function{SEP}{name}\n```json\n{arguments}\n```{CALL_END}"


def v31(name: str, arguments: str) -> str:
    return f"{CALL}{name}{SEP}{arguments}{CALL_END}"


def parsed(text: str) -> list[Part]:
    return parse_every_way(lambda: tool_parser(DEEPSEEK_V3), text)


@pytest.mark.parametrize(("call", "between"), [(v3, "\n"), (v31, "")])
def test_calls_of_both_versions(call, between: str) -> None:
    bus, now = call("next_bus", '{"stop": "```"}'), call("now", "{}")

    parts = parsed(f"Let me see.{BEGIN}{bus}{between}{now}{END}\n")

    assert calls_of(parts) == [("next_bus", '{"stop": "```"}'), ("now", "{}")]
    assert content_of(parts) == "Let me see."


def test_arguments_are_streamed() -> None:
    parser = tool_parser(DEEPSEEK_V3)
    parser.feed(f"{BEGIN}{CALL}function{SEP}next_bus\n```json\n")

    assert parser.feed('{"stop')[-1] == ToolArguments(0, '{"stop')


@pytest.mark.parametrize("missing", ["", END, CALL_END + END, "\n```" + CALL_END + END])
def test_what_is_missing_at_the_end_is_not_missed(missing: str) -> None:
    text = (BEGIN + v3("now", "{}") + END).removesuffix(missing)

    parts = parsed(text)

    assert calls_of(parts) == [("now", "{}")]
    assert content_of(parts) == ""


@pytest.mark.parametrize(
    "text",
    [
        BEGIN,
        f"{BEGIN} hm",
        f"{BEGIN}{CALL}function{SEP}",
        f"{BEGIN}{v3('no_such', '{}')}{END}",
        f"{BEGIN}{v31('no_such', '{}')}{END[:5]}",
        f"{BEGIN}{CALL}function{SEP}now\nhm",
    ],
)
def test_other_text_is_content(text: str) -> None:
    assert parsed(text) == [Content(text)]
