"""Reasoning and what follows it."""

from __future__ import annotations

import pytest
from parser_runs import calls_of, parse_every_way, tool_parser

from router_svc.parsing.formats import HERMES, REASONING_FORMATS
from router_svc.parsing.parts import Content, Part, Reasoning
from router_svc.parsing.plain import PlainParser

THINK = REASONING_FORMATS["deepseek_r1"]


def parsed(text: str, *, opened: bool) -> list[Part]:
    return parse_every_way(lambda: THINK.new_parser(PlainParser(), opened=opened), text)


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("<think>\nHm, so.\n</think>\n\nHello\n", False),
        ("\n<think>Hm, so.</think>Hello\n", False),
        ("\nHm, so.\n</think>\n\nHello\n", True),
        ("<think>Hm, so. </think>Hello\n", True),  # the tag once more
    ],
)
def test_white_space_directly_around_the_tags_is_dropped(text: str, opened: bool) -> None:
    assert parsed(text, opened=opened) == [Reasoning("Hm, so."), Content("Hello\n")]


def test_reasoning_that_was_never_closed_is_all_there_is() -> None:
    assert parsed("Hm, </thin so. ", opened=True) == [Reasoning("Hm, </thin so.")]


@pytest.mark.parametrize(
    "text", [" Hello <think>x</think>", "x</think>y", "<thin", "\n <", "", " \n"]
)
def test_text_that_begins_with_no_reasoning_is_content(text: str) -> None:
    assert parsed(text, opened=False) == ([Content(text)] if text else [])


def test_empty_reasoning_is_none() -> None:
    assert parsed("<think>\n\n</think>\n\nHello", opened=False) == [Content("Hello")]


def test_reasoning_is_streamed() -> None:
    parser = THINK.new_parser(PlainParser(), opened=True)

    assert parser.feed("Hm, so") == [Reasoning("Hm, so")]
    assert parser.feed(". </") == [Reasoning(".")]
    assert parser.feed("b> </think") == [Reasoning(" </b>")]
    assert parser.feed(">\n") == []
    assert parser.feed("\nHi") == [Content("Hi")]


def test_calls_follow_reasoning_and_reasoning_holds_none() -> None:
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'

    parts = parse_every_way(
        lambda: THINK.new_parser(tool_parser(HERMES), opened=True),
        f"I could {call} that.\n</think>\n\n{call}",
    )

    assert parts[0] == Reasoning(f"I could {call} that.")
    assert calls_of(parts) == [("now", "{}")]


def test_mistral_has_tags_of_its_own() -> None:
    parts = parse_every_way(
        lambda: REASONING_FORMATS["mistral"].new_parser(PlainParser(), opened=False),
        "[THINK]Hm.[/THINK]Hello",
    )

    assert parts == [Reasoning("Hm."), Content("Hello")]


@pytest.mark.parametrize(
    ("prompt", "continued", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", "", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "", False),
        ("user: say <think>\nassistant: ", "", False),
        ("assistant: <think>Hm", "<think>Hm", True),
        ("assistant: <think>Hm</think>So", "<think>Hm</think>So", False),
        ("assistant: So", "So", False),
    ],
)
def test_only_the_very_end_of_a_prompt_opens_reasoning(
    prompt: str, continued: str, opened: bool
) -> None:
    assert THINK.opened_by(prompt, continued) is opened
