"""The log-probabilities of a text are those of its tokens, not of the markup around it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from octavo.inference.v1 import inference_pb2 as chat_pb

from router_svc.api.responses.logprobs import of_parts
from router_svc.parsing.parts import Content, Part, Reasoning, ToolArguments, ToolCallStart


def entries(*tokens: str) -> list[chat_pb.TokenLogprob]:
    return [chat_pb.TokenLogprob(token=token, bytes=token.encode()) for token in tokens]


START = ToolCallStart(0, "call_a", "f")


@pytest.mark.parametrize(
    ("parts", "tokens", "found"),
    [
        ([Content("Hi you")], ["Hi", " you"], [["Hi", " you"]]),
        ([Reasoning("Hm")], ["Hm"], [[]]),
        (
            [Reasoning("Hm"), Content("Hi")],
            ["Hm", "</think>", "\n\n", "Hi"],
            [[], ["Hi"]],
        ),
        (
            [Content("Hi."), START, ToolArguments(0, "{}")],
            ["Hi", ".\n", "<tool_call>", "{}"],
            [["Hi", ".\n"], [], []],
        ),
        ([START, Content("é")], ["x", "é"], [[], ["é"]]),
        ([Content("k")], ["</think>", "k"], [["k"]]),
        ([Content("t")], ["t", "<tool_call>"], [["t"]]),
        ([Content("")], ["<tool_call>"], [[]]),
        ([Reasoning("a"), Content("a")], ["a", "|", "a"], [[], ["a"]]),
        ([Reasoning("a"), Content("b")], ["ab"], [[], []]),
        ([Content("\ufffd")], ["x", "y"], [["x", "y"]]),
        ([Content("a"), START], [], [[], []]),
    ],
)
def test_each_part_has_the_entries_of_its_own_tokens(
    parts: Sequence[Part], tokens: Sequence[str], found: Sequence[Sequence[str]]
) -> None:
    given = of_parts(parts, entries(*tokens))

    assert [[entry.token for entry in own] for own in given] == found
