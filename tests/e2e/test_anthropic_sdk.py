"""Anthropic's own Python client against the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel, Field

from tests.support.server import RunningServer

QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]
GREEDY = {"temperature": 0}  # the SDK has no argument for it any more
OPTIONS = {"model": "smollm2", "max_tokens": 32, "messages": QUESTION, "extra_body": GREEDY}
NEXT_BUS = {
    "name": "next_bus",
    "description": "When the next bus leaves a stop.",
    "input_schema": {
        "type": "object",
        "properties": {"stop": {"enum": ["harbour", "station"]}},
        "required": ["stop"],
        "additionalProperties": False,
    },
}
BUS_OPTIONS = {
    **OPTIONS,
    "messages": [{"role": "user", "content": "When does the next bus leave the harbour?"}],
    "tools": [NEXT_BUS],
    "max_tokens": 64,
}


@pytest.fixture
def client(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(server: RunningServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="unused") as client:
        yield client


def _prompt_tokens(usage: anthropic.types.Usage) -> int:
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_create(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(**OPTIONS)

    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "smollm2")
    assert answer.id.startswith("msg_")
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].text == "The capital of Japan is Tokyo."
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.usage.output_tokens == 8


def test_an_answer_is_that_of_chat_completions(
    client: anthropic.Anthropic, server: RunningServer
) -> None:
    turns = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Good morning."},
        {"role": "user", "content": "Name three rivers."},
    ]
    system = "You are a geographer."

    ours = client.messages.create(**{**OPTIONS, "messages": turns}, system=system)

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused") as other:
        theirs = other.chat.completions.create(
            model="smollm2",
            max_tokens=32,
            temperature=0,
            messages=[{"role": "system", "content": system}, *turns],
        )
    assert ours.content[0].text == theirs.choices[0].message.content
    assert _prompt_tokens(ours.usage) == theirs.usage.prompt_tokens
    assert ours.usage.output_tokens == theirs.usage.completion_tokens


def test_a_stream_is_the_whole_answer(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**OPTIONS)

    with client.messages.stream(**OPTIONS) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()

    assert text == whole.content[0].text
    assert final.content[0].text == text
    assert (final.stop_reason, final.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert _prompt_tokens(final.usage) == _prompt_tokens(whole.usage)


def test_the_events_of_a_stream(client: anthropic.Anthropic) -> None:
    events = list(client.messages.create(**OPTIONS, stream=True))

    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert _prompt_tokens(events[0].message.usage) == _prompt_tokens(events[-2].usage)
    assert events[0].message.stop_reason is None


async def test_the_async_client(async_client: anthropic.AsyncAnthropic) -> None:
    whole = await async_client.messages.create(**OPTIONS)

    async with async_client.messages.stream(**OPTIONS) as stream:
        text = "".join([text async for text in stream.text_stream])

    assert text == whole.content[0].text


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
        {"messages": [*QUESTION, {"role": "assistant", "content": "It is"}]},
        {"tools": [NEXT_BUS], "tool_choice": {"type": "auto"}},
    ],
    ids=["question", "system", "prefill", "tools"],
)
def test_counted_tokens_are_those_of_the_answer(
    client: anthropic.Anthropic, more: dict[str, Any]
) -> None:
    options = {**OPTIONS, **more}

    answer = client.messages.create(**{**options, "max_tokens": 1})

    del options["max_tokens"], options["extra_body"]
    counted = client.messages.count_tokens(**options)
    assert counted.input_tokens == _prompt_tokens(answer.usage)


def test_tokens_of_a_prompt_that_is_too_long_are_counted(client: anthropic.Anthropic) -> None:
    long = [{"role": "user", "content": "one " * 3000}]

    counted = client.messages.count_tokens(model="smollm2", messages=long)

    assert counted.input_tokens > 2048
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(**{**OPTIONS, "messages": long})
    assert caught.value.body["error"]["code"] == "context_length_exceeded"
    assert str(counted.input_tokens) in caught.value.api_message


def test_cached_tokens_are_told_apart(client: anthropic.Anthropic) -> None:
    messages = [{"role": "user", "content": "Count with me. " + "one two three " * 20}]
    options = {**OPTIONS, "messages": messages, "max_tokens": 1}
    first = client.messages.create(**options).usage

    second = client.messages.create(**options).usage

    assert second.cache_read_input_tokens > 0
    assert _prompt_tokens(second) == _prompt_tokens(first)


def test_a_last_turn_of_the_assistant_is_continued(client: anthropic.Anthropic) -> None:
    prefill = [*QUESTION, {"role": "assistant", "content": "The capital of Japan"}]

    answer = client.messages.create(**{**OPTIONS, "messages": prefill})

    assert answer.content[0].text == " is Tokyo."


def test_a_stop_sequence_ends_the_answer_and_is_named(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(**OPTIONS, stop_sequences=["Kyoto", " Tokyo"])

    assert answer.content[0].text == "The capital of Japan is"
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", " Tokyo")


def test_max_tokens_end_the_answer(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(**{**OPTIONS, "max_tokens": 3})

    assert answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 3


def test_tools_there_and_back(client: anthropic.Anthropic) -> None:
    choice = {"type": "any", "disable_parallel_tool_use": True}
    first = client.messages.create(**BUS_OPTIONS, tool_choice=choice)

    (use,) = first.content
    assert (use.type, use.name, first.stop_reason) == ("tool_use", "next_bus", "tool_use")
    assert use.input["stop"] in ("harbour", "station")

    result = {"type": "tool_result", "tool_use_id": use.id, "content": "in 5 minutes"}
    turns = [
        *BUS_OPTIONS["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(**{**BUS_OPTIONS, "messages": turns, "max_tokens": 16})
    assert second.usage.output_tokens > 0
    assert _prompt_tokens(second.usage) > _prompt_tokens(first.usage)


def test_a_tools_input_streams_as_fragments(client: anthropic.Anthropic) -> None:
    options = {**BUS_OPTIONS, "tool_choice": {"type": "tool", "name": "next_bus"}}
    whole = client.messages.create(**options)

    with client.messages.stream(**options) as stream:
        fragments = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()

    assert len(fragments) > 1
    assert final.content[0].input == whole.content[0].input
    assert final.stop_reason == whole.stop_reason == "tool_use"


def test_an_answer_of_a_schema(client: anthropic.Anthropic) -> None:
    class Capital(BaseModel):
        city: str = Field(max_length=20)
        country: str = Field(max_length=20)

    answer = client.messages.parse(**{**OPTIONS, "max_tokens": 64}, output_format=Capital)

    assert isinstance(answer.parsed_output, Capital)
    assert answer.stop_reason == "end_turn"


@pytest.mark.parametrize(
    "thinking",
    [{"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}],
    ids=lambda thinking: thinking["type"],
)
def test_a_model_that_cannot_think_answers(
    client: anthropic.Anthropic, thinking: dict[str, Any]
) -> None:
    answer = client.messages.create(**OPTIONS, thinking=thinking)

    assert answer.content[0].text == "The capital of Japan is Tokyo."


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"extra_body": {"temperature": 9}}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        (
            {"tool_choice": {"type": "tool", "name": "walk"}, "tools": [NEXT_BUS]},
            "tool_choice.name",
        ),
        ({"tools": [NEXT_BUS, NEXT_BUS]}, "tools[1].name"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"extra_body": {"mcp_servers": []}}, "mcp_servers"),
        ({"extra_body": {"thinkign": {}}}, "thinkign"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "cow"}}}},
            "output_config.format",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_field_is_named(
    client: anthropic.Anthropic, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(**{**OPTIONS, **more})

    assert caught.value.type == "invalid_request_error"
    assert caught.value.body["error"]["param"].startswith(param)


def test_an_unknown_model_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(**{**OPTIONS, "model": "claude-opus-9"})

    assert caught.value.type == "not_found_error"


def test_a_stream_that_is_left_frees_its_blocks(
    client: anthropic.Anthropic, server: RunningServer
) -> None:
    with client.messages.stream(**{**OPTIONS, "max_tokens": 1000}) as stream:
        next(iter(stream.text_stream))

    assert server.wait_until(server.idle)
