"""Messages over an engine that writes given texts: blocks, thinking, prompts, stream == whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from octavo.inference.v1 import messages_pb2 as pb

from router_svc.api.messages.handler import Messages
from router_svc.call_context import CallContext
from router_svc.errors import ApiError
from router_svc.gen.messages_decode import (
    decode_count_message_tokens_request,
    decode_create_message_request,
)
from router_svc.gen.messages_encode import encode_create_message_response
from router_svc.gen.messages_validate import validate_create_message_request
from router_svc.generation_types import FinishReason
from router_svc.metrics import RouterMetrics
from router_svc.models import Models
from router_svc.served_model import ServedModel
from tests.support.anthropic_client import AnthropicClient
from tests.support.written_answers import WritingEngine, written_model

CALL = '<tool_call>\n{"name": "next_bus", "arguments": {"stop": "Mitte"}}\n</tool_call>'
NEXT_BUS = {"name": "next_bus", "input_schema": {"type": "object"}}
CONTEXT = CallContext("test")
# Reasoning as Qwen 3's template has it: an empty one in the prompt switches it off.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}"
)

Written = tuple[ServedModel, WritingEngine]


@pytest.fixture(scope="module")
def thinker(smollm2_checkpoint: Path) -> Written:
    """A model that writes its reasoning in <think> and its calls as Hermes does."""
    return written_model(
        smollm2_checkpoint, template=TEMPLATE, tool_parser="hermes", reasoning_parser="qwen3"
    )


@pytest.fixture(scope="module")
def sdk() -> Iterator[AnthropicClient]:
    client = AnthropicClient()
    yield client
    client.close()


def _request(**body: Any) -> pb.CreateMessageRequest:
    body = {"max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}]} | body
    request = decode_create_message_request(body, "")
    validate_create_message_request(request)
    return request


async def _whole(model: ServedModel, **body: Any) -> dict[str, Any]:
    handler = Messages(Models([model]), RouterMetrics())
    answer = await handler.create_message(_request(**body), CONTEXT)
    return orjson.loads(orjson.dumps(encode_create_message_response(answer)))


async def _streamed(model: ServedModel, **body: Any) -> list[pb.StreamMessageResponse]:
    handler = Messages(Models([model]), RouterMetrics())
    return [event async for event in handler.stream_message(_request(**body), CONTEXT)]


def _kinds(answer: dict[str, Any]) -> list[str]:
    return [block["type"] for block in answer["content"]]


def _prompt(written: Written) -> str:
    """The prompt that the engine was given last."""
    model, engine = written
    ids = engine.requests[-1].prompt_token_ids
    return model.tokenizer.decode(ids, skip_special_tokens=False)


async def test_thinking_text_and_uses_of_tools_come_in_order(thinker: Written) -> None:
    model, engine = thinker
    engine.texts = [f"<think>\nA bus?\n</think>\n\nLet me look.\n{CALL}\n{CALL}"]

    answer = await _whole(model, tools=[NEXT_BUS])

    assert _kinds(answer) == ["thinking", "text", "tool_use", "tool_use"]
    thinking, text, use, other = answer["content"]
    assert thinking["thinking"].strip() == "A bus?"
    assert text["text"] == "Let me look."
    assert (use["name"], use["input"]) == ("next_bus", {"stop": "Mitte"})
    assert use["id"] != other["id"]
    assert answer["stop_reason"] == "tool_use"
    assert answer["usage"]["output_tokens_details"]["thinking_tokens"] > 0


@given(
    pieces=st.lists(
        st.sampled_from(["<think>", "</think>", "\n", "Hm.", CALL, CALL[:40], "{", "é 🚌"]),
        max_size=6,
    ),
    pace=st.integers(1, 9),
    reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
)
def test_the_stream_as_the_sdk_folds_it_is_the_whole_answer(
    thinker: Written,
    sdk: AnthropicClient,
    pieces: list[str],
    pace: int,
    reason: FinishReason,
) -> None:
    model, engine = thinker
    engine.texts, engine.pace, engine.reason = ["".join(pieces)], pace, reason

    whole = asyncio.run(_whole(model, tools=[NEXT_BUS]))
    events = asyncio.run(_streamed(model, tools=[NEXT_BUS]))

    engine.pace, engine.reason = 1, FinishReason.STOP
    assert sdk.folded(events) == sdk.whole(whole)


@pytest.mark.parametrize(
    ("thinking", "ending"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, "assistant\n"),
        ({"type": "adaptive"}, "assistant\n"),
        ({"type": "disabled"}, "<think>\n\n</think>\n\n"),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
async def test_the_template_switches_thinking(
    thinker: Written, thinking: dict[str, Any], ending: str
) -> None:
    model, engine = thinker
    engine.texts = ["Hello."]

    await _whole(model, thinking=thinking)

    assert _prompt(thinker).endswith(ending)


async def test_thinking_is_left_out_where_it_is_not_wanted(thinker: Written) -> None:
    model, engine = thinker
    engine.texts = ["<think>Hm.</think>Yes."]

    answer = await _whole(model, thinking={"type": "adaptive", "display": "omitted"})

    assert _kinds(answer) == ["text"]
    assert answer["usage"]["output_tokens_details"]["thinking_tokens"] > 0


async def test_an_answer_can_be_sent_back_as_it_is(thinker: Written) -> None:
    model, engine = thinker
    engine.texts = [f"<think>A bus?</think>Let me look.\n{CALL}"]
    answer = await _whole(model, tools=[NEXT_BUS])
    use = answer["content"][-1]
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "in 5 minutes"}
    turns = [
        {"role": "user", "content": "When does the bus leave?"},
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result]},
    ]

    await _whole(model, tools=[NEXT_BUS], messages=turns)

    prompt = _prompt(thinker)
    for part in ("<think>A bus?</think>Let me look.", '{"stop":"Mitte"}', "in 5 minutes"):
        assert part in prompt


async def test_counted_tokens_are_those_of_the_prompt(thinker: Written) -> None:
    model, engine = thinker
    engine.texts = ["Hello."]
    shared = {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "He"}],
        "system": "Be brief.",
        "tools": [NEXT_BUS],
        "thinking": {"type": "disabled"},
    }
    answer = await _whole(model, **shared)

    count = await Messages(Models([model]), RouterMetrics()).count_message_tokens(
        decode_count_message_tokens_request(shared, ""), CONTEXT
    )

    assert count.input_tokens == answer["usage"]["input_tokens"]


async def test_a_name_that_no_tool_can_have_is_the_blocks(thinker: Written) -> None:
    model, _ = thinker
    use = {"type": "tool_use", "id": "1", "name": "next bus", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1"}
    turns = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]

    with pytest.raises(ApiError) as caught:
        await _whole(model, messages=turns)

    assert caught.value.param == "messages[1].content[0].name"
