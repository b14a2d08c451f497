"""OpenAI's own Python client against the real server."""

from __future__ import annotations

import openai
import pytest

from tests.support.server import RunningServer

QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]


@pytest.fixture
def client(server: RunningServer):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    listed = client.models.list().data

    assert [model.id for model in listed] == ["smollm2"]
    assert client.models.retrieve("smollm2").owned_by == "octavo"


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0)

    assert answer.choices[0].message.content == "The capital of Japan is Tokyo."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_chat_stream_equals_the_whole_answer(client: openai.OpenAI) -> None:
    options = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "logprobs": True}
    whole = client.chat.completions.create(**options)

    chunks = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )

    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    entries = [
        e
        for c in chunks
        if c.choices and c.choices[0].logprobs
        for e in c.choices[0].logprobs.content
    ]
    assert entries == whole.choices[0].logprobs.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({c.id for c in chunks}) == 1


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2", prompt=["A:", "B:"], n=2, max_tokens=3, temperature=0, logprobs=2
    )

    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text == answer.choices[1].text
    assert len(answer.choices[0].logprobs.tokens) == 3


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=QUESTION)

    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_a_bad_value_names_its_field(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=9)

    assert caught.value.param == "temperature"


def test_an_unknown_field_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="smollm2", messages=QUESTION, extra_body={"guided_json": {}}
        )

    assert caught.value.param == "guided_json"


def test_the_request_id_comes_back(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="smollm2",
        messages=QUESTION,
        max_tokens=1,
        extra_headers={"x-request-id": "my-request.1"},
    )

    assert raw.headers["x-request-id"] == "my-request.1"
    assert raw.parse().id == "chatcmpl-my-request.1"
