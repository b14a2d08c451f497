"""An answer's events as Anthropic's SDK reads them, and the whole answer that they fold to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import anthropic
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from octavo.inference.v1 import inference_pb2 as chat
from octavo.inference.v1 import messages_pb2 as pb

from router_svc.api.messages.answer import AnswerEvents, WholeAnswer, complete_input
from router_svc.errors import ApiError, ErrorKind
from router_svc.gen.messages_encode import encode_create_message_response
from router_svc.generation_types import FinishReason
from router_svc.parsing.parts import Content, Part, Reasoning, ToolArguments, ToolCallStart
from tests.support.anthropic_client import AnthropicClient

STOP = FinishReason.STOP
CALL = ToolCallStart(0, "call_0", "next_bus")
USAGE = chat.Usage(
    prompt_tokens=20,
    completion_tokens=5,
    prompt_tokens_details=chat.PromptTokensDetails(cached_tokens=16),
    completion_tokens_details=chat.CompletionTokensDetails(reasoning_tokens=2),
)


def _events(
    *parts: Part,
    finish_reason: FinishReason = STOP,
    stop_reason: str | int | None = None,
    max_tokens: int = 5,
) -> list[pb.StreamMessageResponse]:
    request = pb.CreateMessageRequest(max_tokens=max_tokens, stop_sequences=["END"])
    events = AnswerEvents(message_id="msg_1", model="m", request=request)
    return [
        *events.start(USAGE),
        *events.more(parts),
        *events.end(finish_reason, stop_reason, USAGE),
    ]


def _whole(events: Iterable[pb.StreamMessageResponse]) -> dict[str, Any]:
    """The whole answer's JSON."""
    whole = WholeAnswer()
    for event in events:
        whole.add(event)
    # Not orjson: it rounds whole numbers beyond 64 bits.
    return json.loads(orjson.dumps(encode_create_message_response(whole.message())))


def _kinds(events: Iterable[pb.StreamMessageResponse]) -> list[str | None]:
    return [event.WhichOneof("kind") for event in events]


@pytest.fixture(scope="module")
def sdk() -> Iterator[AnthropicClient]:
    client = AnthropicClient()
    yield client
    client.close()


@st.composite
def _parts(draw: st.DrawFn) -> list[Part]:
    """Parts as a parser tells them: arguments follow their call's start, in any fragments."""
    parts: list[Part] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["content", "reasoning", "call"]), max_size=8)):
        texts = draw(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3))
        if kind == "content":
            parts += [Content(text) for text in texts]
        elif kind == "reasoning":
            parts += [Reasoning(text) for text in texts]
        else:
            parts.append(ToolCallStart(calls, f"call_{calls}", "next_bus"))
            value = draw(
                st.dictionaries(
                    st.text(max_size=3),
                    st.integers()
                    | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(max_size=3),
                )
            )
            text = json.dumps(value, indent=2, ensure_ascii=False) if value else ""
            cut = draw(st.integers(0, len(text)))
            fragments = (text[:cut], text[cut:])
            parts += [ToolArguments(calls, fragment) for fragment in fragments if fragment]
            calls += 1
    return parts


@given(
    parts=_parts(),
    truncated=st.integers(0, 12),
    ending=st.sampled_from([(STOP, None), (STOP, "END"), (FinishReason.LENGTH, None)]),
)
def test_the_stream_as_the_sdk_folds_it_is_the_whole_answer(
    sdk: AnthropicClient, parts: list[Part], truncated: int, ending: tuple[FinishReason, str | None]
) -> None:
    if parts and isinstance(parts[-1], ToolArguments):
        last = parts.pop()
        parts.append(ToolArguments(last.call, last.text[: max(1, len(last.text) - truncated)]))
    finish_reason, stop_reason = ending
    events = _events(*parts, finish_reason=finish_reason, stop_reason=stop_reason)

    assert sdk.folded(events) == sdk.whole(_whole(events))


def test_blocks_open_and_close_one_after_another() -> None:
    events = _events(
        Reasoning("Hm."),
        Content("Let me "),
        Content("see."),
        ToolCallStart(0, "call_0", "next_bus"),
        ToolArguments(0, '{"stop":'),
        ToolArguments(0, '"Mitte"}'),
        ToolCallStart(1, "call_1", "next_bus"),
    )

    begin, more, end = "content_block_start", "content_block_delta", "content_block_stop"
    assert _kinds(events) == [
        "message_start",
        *(begin, more, more, end),  # the reasoning and its signature
        *(begin, more, more, end),
        *(begin, more, more, end),
        *(begin, end),
        "message_delta",
        "message_stop",
    ]
    assert _whole(events)["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_0", "name": "next_bus", "input": {"stop": "Mitte"}},
        {"type": "tool_use", "id": "call_1", "name": "next_bus", "input": {}},
    ]


def test_an_answer_of_nothing_has_no_blocks() -> None:
    assert _whole(_events())["content"] == []


def test_white_space_alone_makes_no_block_beside_others() -> None:
    events = _events(
        Content("\n"), Content("\n"), ToolCallStart(0, "call_0", "next_bus"), Content("\n")
    )

    assert [block["type"] for block in _whole(events)["content"]] == ["tool_use"]


def test_white_space_before_text_belongs_to_the_text() -> None:
    events = _events(Reasoning("Hm."), Content("\n\n"), Content(" Yes.\n"))

    assert _whole(events)["content"][1] == {"type": "text", "text": "\n\n Yes.\n"}


def test_an_answer_of_white_space_is_told() -> None:
    assert _whole(_events(Content(" "), Content("\n")))["content"] == [
        {"type": "text", "text": " \n"}
    ]


@pytest.mark.parametrize(
    ("parts", "ending", "stop_reason", "stop_sequence"),
    [
        ([Content("Hi")], {}, "end_turn", None),
        ([Content("Hi")], {"stop_reason": "END"}, "stop_sequence", "END"),
        ([Content("Hi")], {"stop_reason": 2}, "end_turn", None),
        ([CALL], {}, "tool_use", None),
        (
            [ToolCallStart(0, "c", "f")],
            {"finish_reason": FinishReason.TOOL_CALLS},
            "tool_use",
            None,
        ),
        ([CALL], {"finish_reason": FinishReason.LENGTH}, "max_tokens", None),
        (
            [Content("Hi")],
            {"finish_reason": FinishReason.LENGTH, "max_tokens": 6},
            "model_context_window_exceeded",
            None,
        ),
    ],
)
def test_why_an_answer_ended(
    parts: list[Part], ending: dict[str, Any], stop_reason: str, stop_sequence: str | None
) -> None:
    answer = _whole(_events(*parts, **ending))

    assert (answer["stop_reason"], answer["stop_sequence"]) == (stop_reason, stop_sequence)


def test_input_tokens_are_without_the_cached_ones() -> None:
    assert _whole(_events())["usage"] == {
        "input_tokens": 4,
        "output_tokens": 5,
        "cache_read_input_tokens": 16,
        "cache_creation_input_tokens": 0,
        "output_tokens_details": {"thinking_tokens": 2},
    }


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", "{}"),
        ('{"n": 12345678901234567890123}', '{"n": 12345678901234567890123}'),
        ('{"a": [1, 2], "b": "x', '{"a": [1, 2]}'),
        ('{"a', "{}"),
        ("[1]", "{}"),
        ("no JSON", "{}"),
        ('{"n": NaN}', "{}"),
        ("[" * 100_000, "{}"),
    ],
    ids=lambda text: text[:12],
)
def test_input_is_an_object_whatever_the_model_wrote(text: str, whole: str) -> None:
    assert complete_input(text) == whole


def test_an_error_under_way_is_raised_by_the_sdk(sdk: AnthropicClient) -> None:
    events = _events(Content("Hi"))[:3]

    with pytest.raises(anthropic.APIStatusError) as caught:
        sdk.folded([*events, ApiError(ErrorKind.UNAVAILABLE, "the engine is gone")])

    assert caught.value.api_message == "the engine is gone"
