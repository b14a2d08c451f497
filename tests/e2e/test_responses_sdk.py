"""OpenAI's own Python client and its Responses against the real server."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

from tests.support.response_fold import fold
from tests.support.server import RunningServer

QUESTION = "What is the capital of Japan?"
GREEDY = {"model": "smollm2", "temperature": 0}


class NextBus(BaseModel):
    """When the next bus leaves a stop."""

    stop: Literal["Mitte", "Zoo"]


class Capital(BaseModel):
    """What the model is asked to fill in; every value has a bound, so that it ends."""

    country: Literal["Japan", "Norway"]
    city: Literal["Tokyo", "Oslo"]
    population_in_millions: int = Field(ge=0, le=99)


NEXT_BUS: dict[str, Any] = {
    "type": "function",
    "name": "next_bus",
    "description": "When the next bus leaves a stop.",
    "parameters": {
        "type": "object",
        "properties": {"stop": {"type": "string", "enum": ["Mitte", "Zoo"]}},
        "required": ["stop"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture
def client(server: RunningServer):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_a_text_is_answered(client: openai.OpenAI) -> None:
    response = client.responses.create(input=QUESTION, **GREEDY)

    assert response.output_text == "The capital of Japan is Tokyo."
    assert response.status == "completed"
    assert response.usage.total_tokens == response.usage.input_tokens + 8
    assert response.id.startswith("resp_")


def test_items_are_answered_as_chat_answers_messages(client: openai.OpenAI) -> None:
    turns = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": "The capital of Japan is Tokyo."},
        {"role": "user", "content": "And of Norway?"},
    ]
    rule = "Answer with one word."
    messages = [{"role": "system", "content": rule}, *turns]
    chat = client.chat.completions.create(messages=messages, max_tokens=16, **GREEDY)

    response = client.responses.create(
        instructions=rule, input=turns, max_output_tokens=16, **GREEDY
    )

    assert response.output_text == chat.choices[0].message.content
    assert response.usage.input_tokens == chat.usage.prompt_tokens


def test_an_answer_goes_back_in_as_it_came_out(client: openai.OpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": QUESTION}]
    first = client.responses.create(input=history, **GREEDY)

    history += first.output
    history.append({"role": "user", "content": "And of Norway?"})
    second = client.responses.create(input=history, max_output_tokens=16, **GREEDY)

    assert second.output_text
    assert second.usage.input_tokens > first.usage.total_tokens


def test_the_stream_helper_ends_with_the_whole_response(client: openai.OpenAI) -> None:
    whole = client.responses.create(input=QUESTION, **GREEDY)

    with client.responses.stream(input=QUESTION, **GREEDY) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()

    assert text == final.output_text == whole.output_text
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_every_event_adds_to_the_last(client: openai.OpenAI) -> None:
    events = client.responses.create(
        input=QUESTION,
        stream=True,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        **GREEDY,
    )

    response = fold(event.to_dict() for event in events)

    (text,) = response["output"][0]["content"]
    assert text["text"] == "The capital of Japan is Tokyo."
    assert bytes(b for e in text["logprobs"] for b in e["bytes"]).decode() == text["text"]
    assert {len(entry["top_logprobs"]) for entry in text["logprobs"]} == {2}


def test_a_short_answer_is_incomplete(client: openai.OpenAI) -> None:
    response = client.responses.create(input=QUESTION, max_output_tokens=3, **GREEDY)

    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"
    assert response.usage.output_tokens == 3


def test_a_schema_is_parsed_into_its_class(client: openai.OpenAI) -> None:
    response = client.responses.parse(
        input=QUESTION, text_format=Capital, max_output_tokens=100, **GREEDY
    )

    assert isinstance(response.output_parsed, Capital)
    assert response.output_parsed.model_dump() == json.loads(response.output_text)


def test_a_schema_is_parsed_from_a_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(
        input=QUESTION, text_format=Capital, max_output_tokens=100, **GREEDY
    ) as stream:
        final = stream.get_final_response()

    assert isinstance(final.output_parsed, Capital)


def test_a_json_object_is_one(client: openai.OpenAI) -> None:
    response = client.responses.create(
        input="Give me a JSON object with the key city.",
        text={"format": {"type": "json_object"}},
        max_output_tokens=200,
        **GREEDY,
    )

    assert response.output_text.lstrip().startswith("{")
    if response.status == "completed":
        assert isinstance(json.loads(response.output_text), dict)


def test_a_tool_is_called_and_its_output_answered(client: openai.OpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": "When is the next bus from Zoo?"}]
    called = client.responses.create(
        input=history,
        tools=[NEXT_BUS],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=100,
        **GREEDY,
    )
    (call,) = called.output
    assert (call.type, call.name) == ("function_call", "next_bus")
    assert json.loads(call.arguments)["stop"] in ("Mitte", "Zoo")

    history += called.output
    history.append(
        {"type": "function_call_output", "call_id": call.call_id, "output": "in 5 minutes"}
    )
    answer = client.responses.create(
        input=history, tools=[NEXT_BUS], tool_choice="none", max_output_tokens=30, **GREEDY
    )

    assert [item.type for item in answer.output] == ["message"]
    assert answer.output_text


def test_a_calls_arguments_are_parsed_into_their_class(client: openai.OpenAI) -> None:
    response = client.responses.parse(
        input="When is the next bus from Zoo?",
        tools=[openai.pydantic_function_tool(NextBus)],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=100,
        **GREEDY,
    )

    (call,) = response.output
    assert isinstance(call.parsed_arguments, NextBus)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "next_bus"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "next_bus"}],
        },
    ],
)
def test_a_tool_is_called_by_name(client: openai.OpenAI, choice: dict[str, Any]) -> None:
    other = NEXT_BUS | {"name": "book_taxi"}

    response = client.responses.create(
        input="I need a ride.",
        tools=[other, NEXT_BUS],
        tool_choice=choice,
        parallel_tool_calls=False,
        max_output_tokens=100,
        **GREEDY,
    )

    assert [item.name for item in response.output] == ["next_bus"]
    assert response.status == "completed"


def test_a_calls_arguments_are_streamed(client: openai.OpenAI) -> None:
    events = client.responses.create(
        input="When is the next bus from Zoo?",
        tools=[NEXT_BUS],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=100,
        stream=True,
        **GREEDY,
    )

    response = fold(event.to_dict() for event in events)

    (call,) = response["output"]
    assert json.loads(call["arguments"])["stop"] in ("Mitte", "Zoo")


async def test_the_async_client_asks_several_at_once(server: RunningServer) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="unused", max_retries=0
    ) as client:

        async def ask() -> str:
            async with client.responses.stream(input=QUESTION, **GREEDY) as stream:
                return (await stream.get_final_response()).output_text

        answers = await asyncio.gather(
            *(ask() for _ in range(3)), client.responses.create(input=QUESTION, **GREEDY)
        )

    texts = [answer if isinstance(answer, str) else answer.output_text for answer in answers]
    assert set(texts) == {"The capital of Japan is Tokyo."}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": QUESTION, "temperature": 9}, "temperature"),
        ({"input": [{"role": "user", "content": "x " * 4000}]}, "input"),
        ({"input": QUESTION, "store": True}, "store"),
        ({"input": QUESTION, "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": QUESTION, "background": True}, "background"),
        ({"input": QUESTION, "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": QUESTION, "extra_body": {"max_tokens": 5}}, "max_tokens"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_field_is_named(
    client: openai.OpenAI, body: dict[str, Any], param: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**(GREEDY | body), stream=stream)

    assert caught.value.param == param


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="gpt-9", input=QUESTION)

    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_octavos_own_fields_work_too(client: openai.OpenAI) -> None:
    extra = {"top_k": 1, "seed": 5, "request_id": "mine", "cache_salt": "s", "min_p": 0.1}

    response = client.responses.create(model="smollm2", input=QUESTION, extra_body=extra)

    assert response.id == "resp_mine"
    assert response.output_text == "The capital of Japan is Tokyo."


def test_what_has_no_effect_is_accepted_and_repeated(client: openai.OpenAI) -> None:
    response = client.responses.create(
        input=QUESTION,
        store=False,
        metadata={"a": "b"},
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        service_tier="flex",
        truncation="disabled",
        include=["reasoning.encrypted_content"],
        reasoning={"summary": "auto"},
        text={"verbosity": "low"},
        **GREEDY,
    )

    assert response.metadata == {"a": "b"}
    assert (response.user, response.safety_identifier, response.prompt_cache_key) == ("u", "s", "k")
    assert response.service_tier == "default"
    assert response.text.verbosity == "low"
