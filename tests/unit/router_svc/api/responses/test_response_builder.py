"""The builder of responses: OpenAI's events in OpenAI's order, which add up to the response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from octavo.inference.v1 import inference_pb2 as chat_pb
from octavo.inference.v1 import responses_pb2 as pb
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from router_svc.api.responses.answer import ResponseBuilder
from router_svc.api.responses.request import head_of
from router_svc.gen.responses_decode import decode_create_response_request
from router_svc.gen.responses_encode import encode_response, encode_response_event
from router_svc.parsing.parts import Content, Part, Reasoning, ToolArguments, ToolCallStart
from tests.support.response_fold import fold

USAGE = chat_pb.Usage(
    prompt_tokens=5,
    completion_tokens=7,
    total_tokens=12,
    prompt_tokens_details=chat_pb.PromptTokensDetails(cached_tokens=4),
    completion_tokens_details=chat_pb.CompletionTokensDetails(reasoning_tokens=3),
)
TOOL = {
    "type": "function",
    "name": "weather",
    "description": None,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
REQUEST = {
    "input": "Hi",
    "instructions": "Be brief.",
    "temperature": 0.5,
    "tools": [TOOL],
    "metadata": {"a": "b"},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
}
OPENAI_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def builder() -> ResponseBuilder:
    head = head_of(decode_create_response_request(REQUEST, ""))
    head.id, head.model, head.created_at = "resp_1", "smollm2", 17
    return ResponseBuilder(head, "1")


def plain(value: Any) -> Any:
    """What a client reads."""
    return orjson.loads(orjson.dumps(value))


def json_of(events: Iterable[pb.ResponseEvent]) -> list[dict[str, Any]]:
    return [plain(encode_response_event(event)) for event in events]


def answered(parts: Sequence[Part], *, cut: bool = False) -> tuple[list[dict[str, Any]], Any]:
    """Events and response of an answer of these parts."""
    building = builder()
    events = building.start()
    for part in parts:
        entry = chat_pb.TokenLogprob(token="t", logprob=-1, bytes=b"t")
        events += building.add(part, [entry] if isinstance(part, Content) else [])
    events += building.finish(USAGE, cut=cut, now=18)
    return json_of(events), plain(encode_response(building.response))


def kinds(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_text_comes_as_one_message() -> None:
    events, response = answered([Content("Hello"), Content(" there")])

    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    (item,) = response["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"][0]["text"] == "Hello there"
    assert len(item["content"][0]["logprobs"]) == 2


def test_reasoning_text_and_calls_are_items_of_their_own() -> None:
    events, response = answered(
        [
            Reasoning("Hm."),
            Content("Let me see."),
            ToolCallStart(0, "call_a", "weather"),
            ToolArguments(0, '{"city":'),
            ToolArguments(0, '"Oslo"}'),
            ToolCallStart(1, "call_b", "weather"),
        ]
    )

    assert kinds(events)[2:8] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    assert kinds(events)[14:19] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    reasoning, message, first, second = response["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert message["content"][0]["text"] == "Let me see."
    assert (first["call_id"], first["arguments"]) == ("call_a", '{"city":"Oslo"}')
    assert (second["call_id"], second["arguments"]) == ("call_b", "")
    assert len({item["id"] for item in response["output"]}) == 4


def test_an_answer_that_was_cut_is_incomplete_and_so_is_its_last_item() -> None:
    events, response = answered([Reasoning("Hm."), Content("Hel")], cut=True)

    assert kinds(events)[-1] == "incomplete"
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["completed_at"] is None
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


def test_an_empty_answer_is_an_empty_message() -> None:
    events, response = answered([])

    assert fold(events) == response
    assert response["output"][0]["content"][0]["text"] == ""


def test_a_failure_ends_the_stream_with_what_was_said() -> None:
    building = builder()
    events = building.start() + building.add(Content("Hel"))

    events += building.fail("server_error", "the engine is gone")

    response = json_of(events)[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "server_error", "message": "the engine is gone"}
    assert response["output"][0]["content"][0]["text"] == "Hel"
    assert response["output"][0]["status"] == "incomplete"
    assert fold(json_of(events))["output"][0]["content"][0]["text"] == "Hel"


def test_arguments_without_a_call_are_a_fault_of_the_parser() -> None:
    with pytest.raises(ValueError, match="call 3"):
        builder().add(ToolArguments(3, "{}"))


def test_the_response_repeats_its_request_and_counts_tokens() -> None:
    _, response = answered([Content("x")])

    for name in ("instructions", "temperature", "metadata", "text", "tools"):
        assert response[name] == REQUEST[name], name
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 12,
    }
    assert response["store"] is False


texts = st.text(max_size=5)


@st.composite
def answers(draw: st.DrawFn) -> list[Part]:
    """Parts as parsers make them: arguments follow their call's start."""
    parts: list[Part] = []
    for call, kind in enumerate(draw(st.lists(st.sampled_from("crt"), max_size=6))):
        pieces = draw(st.lists(texts, max_size=3))
        if kind == "c":
            parts += [Content(text) for text in pieces]
        elif kind == "r":
            parts += [Reasoning(text) for text in pieces]
        else:
            parts.append(ToolCallStart(call, f"call_{call}", draw(texts)))
            parts += [ToolArguments(call, text) for text in pieces]
    return parts


@given(answers(), st.booleans())
def test_the_stream_adds_up_to_the_response(parts: list[Part], cut: bool) -> None:
    events, response = answered(parts, cut=cut)

    assert fold(events) == response


@given(answers(), st.booleans())
def test_every_event_is_one_of_openais(parts: list[Part], cut: bool) -> None:
    events, response = answered(parts, cut=cut)

    for event in events:
        assert OPENAI_EVENT.validate_python(event).type == event["type"]
    assert Response.model_validate(response).id == "resp_1"


def joined(parts: Sequence[Part]) -> list[Part]:
    """The same answer in as few parts as can be."""
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if isinstance(part, ToolCallStart) or type(part) is not type(last):
            result.append(part)
        else:
            result[-1] = last._replace(text=last.text + part.text)  # type: ignore[union-attr]
    return result


@given(answers())
def test_the_response_does_not_depend_on_how_the_answer_came(parts: list[Part]) -> None:
    def response(given: Sequence[Part]) -> Any:
        building = builder()
        for part in given:
            building.add(part)
        building.finish(USAGE, cut=False, now=18)
        return plain(encode_response(building.response))

    assert response(parts) == response(joined(parts))
