"""OpenAI's own clients, in Python and in Node, against the real server."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.clients.running import Examples, run_node, run_python
from tests.clients.vectors import check_embeddings
from tests.support import plain_http
from tests.support.lent_model import LentModel
from tests.support.processes import engine_of
from tests.support.server import RunningServer, running_server

ANSWER = "The capital of Japan is Tokyo."
NAMES = {"Tokyo", "Paris", "Rome"}
RETRIES = {"python": "openai_python/retries.py", "node": "openai_node/retries.mjs"}


@pytest.fixture(scope="module")
def python(server: RunningServer, embedder: RunningServer) -> Examples:
    return run_python("openai_python/example.py", server.url, embedder.url, environment=None)


@pytest.fixture(scope="module")
def node(server: RunningServer, embedder: RunningServer) -> Examples:
    return run_node("openai_node/example.mjs", server.url, embedder.url)


def check_city(city: dict) -> None:
    """It is what the schema allows."""
    assert set(city) == {"name", "country", "districts"}
    assert city["name"] in NAMES
    assert 1 <= city["districts"] <= 99


def check_call(call: dict) -> None:
    """The tool was called with arguments that its schema allows."""
    assert call["name"] == "next_bus"
    assert json.loads(call["arguments"])["stop"] in {"harbour", "station"}


def test_python_chats(python: Examples) -> None:
    assert python["chat"] == ANSWER
    assert python["chat_stream"] == {"text": ANSWER, "completion_tokens": 8}


def test_python_parses_an_answer_into_a_model(python: Examples) -> None:
    check_city(python["parse"])
    assert python["parse_stream"]["parsed"] == python["parse"]
    assert "content.done" in python["parse_stream"]["events"]


def test_python_calls_a_tool_and_answers_from_its_result(python: Examples) -> None:
    outcome = python["tools"]

    check_call(outcome)
    assert outcome["finish_reason"] == "tool_calls"
    assert outcome["answer"]


def test_python_streams_a_tool_call(python: Examples) -> None:
    streamed, whole = python["tools_stream"], python["tools"]

    assert streamed["joined"] == streamed["arguments"] == whole["arguments"]
    assert streamed["parsed"] == json.loads(whole["arguments"])
    assert streamed["finish_reason"] == "tool_calls"


def test_python_lets_the_model_choose_whether_to_call(python: Examples) -> None:
    outcome = python["tools_auto"]

    assert set(outcome["calls"]) <= {"next_bus"}
    assert outcome["text"] or outcome["calls"]
    assert (outcome["finish_reason"] == "tool_calls") == bool(outcome["calls"])


def test_python_uses_responses(python: Examples) -> None:
    assert python["responses"] == {"text": ANSWER, "status": "completed"}
    streamed = {"text": ANSWER, "final": ANSWER, "status": "completed"}
    assert python["responses_stream"] == streamed
    check_city(python["responses_parse"])
    check_call(python["responses_tools"])


def test_python_names_what_is_refused(python: Examples) -> None:
    expected = {"param": "temperature", "type": "invalid_request_error", "status": 400}
    assert python["refused"] == expected


def test_python_embeds(python: Examples) -> None:
    outcome = python["embeddings"]

    check_embeddings(outcome["packed"])
    assert outcome["packed"] == outcome["plain"]
    assert outcome["prompt_tokens"] > 0


def test_node_chats(node: Examples) -> None:
    assert node["chat"] == ANSWER
    assert node["chatStream"] == {"text": ANSWER, "completion_tokens": 8}


def test_node_parses_an_answer_into_an_object(node: Examples) -> None:
    check_city(node["parse"])


def test_node_calls_a_tool_whole_and_streamed(node: Examples) -> None:
    check_call(node["tools"])
    assert node["toolsStream"] == node["tools"] | {"joined": node["tools"]["arguments"]}
    assert node["tools"]["finish_reason"] == "tool_calls"


def test_node_uses_responses(node: Examples) -> None:
    assert node["responses"] == {"text": ANSWER, "status": "completed"}
    assert node["responsesStream"] == {"text": ANSWER, "final": ANSWER, "status": "completed"}


def test_node_names_what_is_refused(node: Examples) -> None:
    assert node["refused"] == {
        "kind": "BadRequestError",
        "param": "temperature",
        "type": "invalid_request_error",
        "status": 400,
    }


def test_node_embeds(node: Examples) -> None:
    check_embeddings(node["embeddings"])


async def _patient(language: str, server: RunningServer) -> dict:
    script = RETRIES[language]
    if language == "node":
        return (await asyncio.to_thread(run_node, script, server.url))["patient"]
    results = await asyncio.to_thread(run_python, script, server.url, environment=None)
    return results["patient"]


@pytest.mark.parametrize("language", RETRIES)
async def test_a_client_comes_back_when_the_queue_has_room(
    language: str, smollm2_gguf: Path, tmp_path: Path
) -> None:
    """One stream runs, one waits: the client gets 429 with Retry-After until both are left."""
    args = ("--served-model-name=smollm2", "--max-num-seqs=1", "--max-num-queued-reqs=1")
    endless = {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    left = asyncio.Event()
    with running_server(smollm2_gguf, *args, log=tmp_path / "log") as server:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=100) as http,
            asyncio.TaskGroup() as group,
        ):
            for state in ("running", "waiting"):
                group.create_task(_occupy(http, endless, left))
                holds = partial(_holds_one, server, state)
                assert await asyncio.to_thread(server.wait_until, holds)
            client = group.create_task(_patient(language, server))
            refused = await asyncio.to_thread(server.wait_until, lambda: _answers(server, 429) >= 1)
            left.set()

    assert refused
    assert client.result()["text"] == ANSWER
    assert client.result()["retries"] >= 1


async def test_clients_come_back_when_a_dead_engine_is_replaced(
    smollm2_gguf: Path, tmp_path: Path
) -> None:
    args = ("--served-model-name=smollm2",)
    model = LentModel(smollm2_gguf, tmp_path)
    with running_server(model.path, *args, log=tmp_path / "log") as server:
        model.take_away()
        engine_of(server).kill()
        assert await asyncio.to_thread(server.wait_until, lambda: not _ready(server))
        model.give_back()

        results = await asyncio.gather(*(_patient(name, server) for name in RETRIES))

    assert [result["text"] for result in results] == [ANSWER] * len(RETRIES)


async def _occupy(http: httpx.AsyncClient, body: dict, left: asyncio.Event) -> None:
    """Keeps a stream open until the event, then leaves it."""
    async with http.stream("POST", "/v1/completions", json=body):
        await left.wait()


def _holds_one(server: RunningServer, state: str) -> bool:
    return server.metric(f"vllm:num_requests_{state}") == 1


def _answers(server: RunningServer, status: int) -> float:
    text = plain_http.get(f"{server.url}/metrics").text
    label = f'status="{status}"'
    lines = (line for line in text.splitlines() if line.startswith("octavo_router_http_answers"))
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if label in line)


def _ready(server: RunningServer) -> bool:
    return plain_http.get(f"{server.url}/health").status_code == 200
