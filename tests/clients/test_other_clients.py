"""Clients that others build on OpenAI's and Anthropic's APIs, against the real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.environment import client_python
from tests.clients.running import Examples, need, run, run_python
from tests.clients.vectors import check_embeddings
from tests.support.server import RunningServer

ANSWER = "The capital of Japan is Tokyo."
NAMES = {"Tokyo", "Paris", "Rome"}
STOPS = {"harbour", "station"}


@pytest.fixture(scope="module")
def anthropic(server: RunningServer) -> Examples:
    return run_python("anthropic_sdk/example.py", server.url, environment=None)


@pytest.fixture(scope="module")
def langchain(server: RunningServer, embedder: RunningServer) -> Examples:
    script = "langchain_openai_client/example.py"
    return run_python(script, server.url, embedder.url, environment="langchain-openai")


@pytest.fixture(scope="module")
def instructor(server: RunningServer) -> Examples:
    return run_python("instructor_client/example.py", server.url, environment="instructor")


@pytest.fixture(scope="module")
def litellm(server: RunningServer, embedder: RunningServer) -> Examples:
    script = "litellm_client/example.py"
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return run_python(script, server.url, embedder.url, environment="litellm", **offline)


def check_city(city: dict) -> None:
    """It is what the schema allows."""
    assert set(city) == {"name", "districts"}
    assert city["name"] in NAMES
    assert 1 <= city["districts"] <= 99


def test_anthropic_creates_a_message(anthropic: Examples) -> None:
    answer = anthropic["create"]

    assert answer["text"] == ANSWER
    assert answer["stop_reason"] == "end_turn"
    assert answer["output_tokens"] == 8
    assert answer["input_tokens"] == anthropic["count_tokens"]


def test_anthropic_streams_a_message(anthropic: Examples) -> None:
    assert anthropic["stream"] == {
        "text": ANSWER,
        "final": ANSWER,
        "stop_reason": "end_turn",
        "output_tokens": 8,
    }


def test_anthropic_uses_tools(anthropic: Examples) -> None:
    called, streamed = anthropic["tools"], anthropic["tools_stream"]

    assert (called["name"], called["stop_reason"]) == ("next_bus", "tool_use")
    assert called["input"]["stop"] in STOPS
    assert called["answer"]
    assert json.loads(streamed["joined"]) == streamed["input"]
    assert streamed["input"]["stop"] in STOPS
    assert streamed["stop_reason"] == "tool_use"


def test_anthropic_names_what_is_refused(anthropic: Examples) -> None:
    refused = anthropic["refused"]

    assert refused["status"] == 400
    assert refused["body"]["error"]["type"] == "invalid_request_error"
    assert "temperature" in refused["body"]["error"]["message"]


def test_langchain_invokes_and_streams(langchain: Examples) -> None:
    assert langchain["invoke"] == {"text": ANSWER, "output_tokens": 8}
    assert langchain["stream"] == ANSWER


def test_langchain_binds_tools(langchain: Examples) -> None:
    called = langchain["bind_tools"]

    assert called["name"] == "next_bus"
    assert called["result"] == f"in 5 minutes from {called['args']['stop']}"
    assert langchain["bind_tools_stream"] == {"name": "next_bus", "args": called["args"]}


def test_langchain_gets_structured_output(langchain: Examples) -> None:
    check_city(langchain["structured"])
    check_city(langchain["structured_by_tool"])


def test_langchain_embeds(langchain: Examples) -> None:
    check_embeddings(langchain["embeddings"])


def test_instructor_extracts_by_tool_and_by_schema(instructor: Examples) -> None:
    check_city(instructor["by_tool"])
    check_city(instructor["by_json_schema"])


def test_litellm_chats_and_streams(litellm: Examples) -> None:
    assert litellm["chat"] == litellm["chat_as_openai"] == litellm["stream"] == ANSWER


def test_litellm_uses_tools(litellm: Examples) -> None:
    assert litellm["tools"]["name"] == "next_bus"
    assert json.loads(litellm["tools"]["arguments"])["stop"] in STOPS


def test_litellm_embeds(litellm: Examples) -> None:
    check_embeddings(litellm["embeddings"])


@pytest.fixture(scope="module")
def llm_home(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user of the `llm` command writes down to use this server."""
    home = tmp_path_factory.mktemp("llm")
    (home / "extra-openai-models.yaml").write_text(
        f"- model_id: octavo\n"
        f"  model_name: smollm2\n"
        f"  api_base: {server.url}/v1\n"
        f"  supports_schema: true\n"
    )
    return home


def llm(home: Path, *args: str) -> str:
    python = need(lambda: client_python("llm"))
    command = (str(python), "-m", "llm", "prompt", "-m", "octavo", "-o", "temperature", "0", *args)
    return run(*command, LLM_USER_PATH=str(home), OPENAI_API_KEY="unused").strip()


def test_the_llm_command_prompts_whole_and_streamed(llm_home: Path) -> None:
    question = "What is the capital of Japan?"

    assert llm(llm_home, "--no-stream", question) == ANSWER
    assert llm(llm_home, question) == ANSWER


def test_the_llm_command_asks_for_a_schema(llm_home: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": sorted(NAMES)}, "districts": {"type": "integer"}},
        "required": ["name", "districts"],
        "additionalProperties": False,
    }
    schema["properties"]["districts"] |= {"minimum": 1, "maximum": 99}

    answer = llm(llm_home, "--schema", json.dumps(schema), "What is the capital of Japan?")

    check_city(json.loads(answer))
