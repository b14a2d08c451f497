"""Responses over an engine that writes given texts: items, stream == whole, and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router_svc.api.responses.handler import Responses
from router_svc.call_context import CallContext
from router_svc.errors import ApiError
from router_svc.gen.responses_decode import decode_create_response_request
from router_svc.gen.responses_encode import encode_response, encode_response_event
from router_svc.gen.responses_validate import validate_create_response_request
from router_svc.generation_types import FinishReason
from router_svc.metrics import RouterMetrics
from router_svc.models import Models
from router_svc.served_model import ServedModel
from tests.support.response_fold import fold
from tests.support.written_answers import WritingEngine, written_model

CALL = '<tool_call>\n{"name": "next_bus", "arguments": {"stop": "Mitte"}}\n</tool_call>'
TOOL = {"type": "function", "name": "next_bus", "parameters": {"type": "object"}}
LOGPROBS = ["message.output_text.logprobs"]


@pytest.fixture(scope="module")
def thinking(smollm2_checkpoint: Path) -> tuple[ServedModel, WritingEngine]:
    """A model that writes its reasoning in <think> and its calls as Hermes does."""
    return written_model(smollm2_checkpoint, tool_parser="hermes", reasoning_parser="qwen3")


def call_of(body: dict[str, Any]) -> tuple[Any, CallContext]:
    request = decode_create_response_request({"input": "Hi"} | body, "")
    validate_create_response_request(request)
    return request, CallContext("test")


def plain(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


async def whole(served: ServedModel, /, **body: Any) -> dict[str, Any]:
    response = await Responses(Models([served]), RouterMetrics()).create_response(*call_of(body))
    return plain(encode_response(response))


async def streamed(served: ServedModel, /, **body: Any) -> list[dict[str, Any]]:
    events = Responses(Models([served]), RouterMetrics()).stream_response(*call_of(body))
    return [plain(encode_response_event(event)) async for event in events]


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


async def test_reasoning_words_and_calls_come_in_order(
    thinking: tuple[ServedModel, WritingEngine],
) -> None:
    served, engine = thinking
    engine.texts = [f"<think>\nA bus?\n</think>\n\nLet me look.\n{CALL}\n{CALL}"]

    response = await whole(served, tools=[TOOL])

    assert kinds(response) == ["reasoning", "message", "function_call", "function_call"]
    reasoning, message, call, other = response["output"]
    assert reasoning["content"][0]["text"].strip() == "A bus?"
    assert message["content"][0]["text"] == "Let me look."
    assert (call["name"], call["arguments"]) == ("next_bus", '{"stop": "Mitte"}')
    assert call["call_id"] != other["call_id"]
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


async def test_log_probabilities_are_those_of_the_text(
    thinking: tuple[ServedModel, WritingEngine],
) -> None:
    served, engine = thinking
    engine.texts = [f"<think>\nA bus?\n</think>\n\nLet me look.\n{CALL}"]

    response = await whole(served, tools=[TOOL], include=LOGPROBS)

    (text,) = response["output"][1]["content"]
    told = bytes(byte for entry in text["logprobs"] for byte in entry["bytes"])
    assert told.decode().strip() == text["text"]


async def test_no_log_probabilities_unless_asked_for(
    thinking: tuple[ServedModel, WritingEngine],
) -> None:
    served, engine = thinking
    engine.texts = ["Hello"]

    response = await whole(served)

    assert response["output"][0]["content"][0]["logprobs"] == []


async def test_an_answer_that_ran_out_of_tokens_says_so(
    thinking: tuple[ServedModel, WritingEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, engine = thinking
    engine.texts = ["Hello there"]
    monkeypatch.setattr(engine, "reason", FinishReason.LENGTH)

    response = await whole(served, max_output_tokens=2)

    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


pieces = st.sampled_from(
    ["<think>", "</think>", "Hm.", "\n\n", "Hello wörld 🙂", CALL, CALL[:30], "<tool_call>", "x"]
)


def settled(response: dict[str, Any]) -> dict[str, Any]:
    """What two answers to the same request have in common."""
    return {k: v for k, v in response.items() if k not in ("created_at", "completed_at")}


@settings(max_examples=60)
@given(texts=st.lists(pieces, max_size=6), pace=st.integers(1, 5), with_tools=st.booleans())
async def test_the_stream_adds_up_to_the_whole(
    thinking: tuple[ServedModel, WritingEngine], texts: list[str], pace: int, with_tools: bool
) -> None:
    served, engine = thinking
    engine.texts, engine.pace = ["".join(texts)], pace
    body = {"include": LOGPROBS, "tools": [TOOL] if with_tools else []}

    response = fold(await streamed(served, **body))

    assert settled(response) == settled(await whole(served, **body))


@settings(max_examples=60)
@given(texts=st.lists(pieces, max_size=6), pace=st.integers(1, 5))
async def test_an_answer_does_not_depend_on_the_engines_pace(
    thinking: tuple[ServedModel, WritingEngine], texts: list[str], pace: int
) -> None:
    served, engine = thinking
    engine.texts, engine.pace = ["".join(texts)], pace
    slow = await whole(served, tools=[TOOL])

    engine.pace = 100

    assert settled(slow) == settled(await whole(served, tools=[TOOL]))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "x " * 5000}, "input"),
        ({"model": "another"}, "model"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": [TOOL | {"strict": True, "parameters": {"type": "foo"}}]},
            "tools[0].parameters",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "foo"}}}},
            "text.format",
        ),
        ({"request_id": "a b"}, "request_id"),
        ({"stream_options": {}}, "stream_options"),
    ],
)
async def test_what_the_pipeline_refuses_has_the_responses_own_field(
    thinking: tuple[ServedModel, WritingEngine], body: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        await whole(thinking[0], **body)

    assert caught.value.param == param
