"""A deadline is kept whatever the engine does: it hangs, goes silent under way, or is not there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from octavo.inference.v1 import inference_pb2, inference_pb2_grpc

from router_svc.edge import Edge
from tests.support.scripted_generator import Edges, scripted_router

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "bbbb"}]
SERVICES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": USER, "max_tokens": 6}),
    ("/v1/completions", {"prompt": "bbbb", "max_tokens": 6}),
    ("/v1/completions", {"prompt": ["bbbb", "bb"], "max_tokens": 6}),
    ("/v1/responses", {"input": "bbbb", "max_output_tokens": 16}),
    ("/v1/messages", {"model": "encoder", "messages": USER, "max_tokens": 6}),
]
SECONDS = 0.4
# The router alone bounds these requests: the clients' own patience is far longer.
SOON = {"x-request-timeout-seconds": str(SECONDS)}
PATIENCE = 60.0


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[Edges]:
    async with scripted_router(tmp_path, Edge()) as running:
        yield running


@pytest.fixture
async def http(router: Edges) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=router.url, timeout=PATIENCE) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), SERVICES)
async def test_an_engine_that_hangs_is_a_504_and_is_told_to_stop(
    router: Edges, http: httpx.AsyncClient, path: str, body: dict[str, Any], stream: bool
) -> None:
    router.engine.hang_after = 0

    while not router.engine.submitted:  # it has heard of none whose deadline passed before
        answer = await http.post(path, json=body | {"stream": stream}, headers=SOON)
        assert answer.status_code == 504
        assert answer.json()["error"]["type"] == "timeout_error"

    await asyncio.wait_for(router.engine.was_cancelled.wait(), PATIENCE)
    timeout = router.engine.submitted[0].timeout.ToMilliseconds()
    assert 0 < timeout <= SECONDS * 1000


async def test_an_encoder_that_hangs_is_a_504_and_is_told_to_stop(
    router: Edges, http: httpx.AsyncClient
) -> None:
    router.engine.hang = True

    while not router.engine.calls:  # as above
        answer = await http.post("/v1/embeddings", json={"input": "bbbb"}, headers=SOON)
        assert answer.status_code == 504

    await asyncio.wait_for(router.engine.cancelled.wait(), PATIENCE)


async def test_a_stream_that_falls_silent_ends_with_the_error(
    router: Edges, http: httpx.AsyncClient
) -> None:
    router.engine.hang_after = 3

    body = SERVICES[0][1] | {"stream": True}
    while (answer := await http.post(CHAT, json=body, headers=SOON)).status_code != 200:
        assert answer.status_code == 504  # its deadline passed before the first token

    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if "data: " in line]
    assert json.loads(events[-1])["error"]["type"] == "timeout_error"
    assert "".join(json.loads(e)["choices"][0]["delta"]["content"] for e in events[:-1]) == "aaa"
    await asyncio.wait_for(router.engine.was_cancelled.wait(), PATIENCE)


async def test_an_answer_whose_engine_is_lost_waits_for_another_until_the_deadline(
    router: Edges, http: httpx.AsyncClient
) -> None:
    router.engine.break_after = 3

    answer = await http.post(CHAT, json=SERVICES[0][1], headers=SOON)

    assert answer.status_code == 504


async def test_a_deadline_that_passed_costs_the_engine_nothing(
    router: Edges, http: httpx.AsyncClient
) -> None:
    for _ in range(5):
        router.engine.hang_after = 0
        answer = await http.post(
            CHAT, json=SERVICES[0][1], headers={"x-request-timeout-seconds": "0.02"}
        )
        assert answer.status_code == 504
    router.engine.hang_after = None

    assert (await http.post(CHAT, json=SERVICES[0][1])).status_code == 200


@pytest.mark.parametrize("method", ["CreateChatCompletion", "StreamChatCompletion"])
async def test_a_call_ends_at_its_deadline_on_both_sides(router: Edges, method: str) -> None:
    router.engine.hang_after = 0
    message = inference_pb2.ChatMessage(
        role=inference_pb2.ROLE_USER, content=inference_pb2.MessageContent(text="bbbb")
    )
    request = inference_pb2.CreateChatCompletionRequest(messages=[message], max_tokens=6)
    async with grpc.aio.insecure_channel(router.grpc_target) as channel:
        ask = getattr(inference_pb2_grpc.InferenceStub(channel), method)

        while not router.engine.submitted:  # as above
            code = await ask(request, timeout=SECONDS).code()
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED

        await asyncio.wait_for(router.engine.was_cancelled.wait(), PATIENCE)
