"""However a request ends, nothing of it is left: no block, no gauge, no doubt in the counters.

After every test here the server must come to rest by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support import plain_http
from tests.support.scrape import by_label
from tests.support.server import RunningServer, running_server

LONG = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "temperature": 0}
SHORT = LONG | {"max_tokens": 4}
# A deadline passes at the client, the router and the engine at once: whoever notices ends it, and
# on a machine that stood still it may have passed before the engine heard of the request.
ENDED_LATE = [{"timeout": 1}, {"abort": 1}, {}]


@pytest.fixture(autouse=True)
def at_rest(server: RunningServer) -> Iterator[None]:
    assert server.wait_until(lambda: _at_rest(server)), "what was before has not ended"
    yield
    assert server.wait_until(lambda: _at_rest(server)), plain_http.get(f"{server.url}/metrics").text


def _at_rest(server: RunningServer) -> bool:
    return server.idle() and server.metric("octavo_router_requests_in_flight") == 0


def _endings(server: RunningServer) -> dict[str, float]:
    return by_label(server, "vllm:request_success_total", "finished_reason")


def _counted(server: RunningServer, before: dict[str, float]) -> dict[str, float]:
    """By how much each way to end was counted since `before`, where it was at all."""
    assert server.wait_until(lambda: _at_rest(server))
    after = _endings(server)
    return {key: value - before[key] for key, value in after.items() if value != before[key]}


async def _running(server: RunningServer, count: int) -> None:
    def all_run() -> bool:
        return server.metric("vllm:num_requests_running") == count

    assert await asyncio.to_thread(server.wait_until, all_run)


async def _ids(client: httpx.AsyncClient, body: dict) -> AsyncIterator[list[int]]:
    """Token ids of a streamed completion's first choice, chunk by chunk."""
    body = body | {"stream": True, "return_token_ids": True}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))["choices"][0].get("token_ids") or []


def _client(server: RunningServer) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_an_http_client_that_goes_away_ends_its_request(
    server: RunningServer, stream: bool
) -> None:
    before = _endings(server)
    async with _client(server) as client:
        call = asyncio.create_task(client.post("/v1/completions", json=LONG | {"stream": stream}))
        await _running(server, 1)

        call.cancel()

    assert _counted(server, before) == {"abort": 1}
    generated = server.metric("vllm:generation_tokens_total")
    await asyncio.sleep(0.3)
    assert server.metric("vllm:generation_tokens_total") == generated


async def test_a_cancelled_grpc_call_ends_its_request(server: RunningServer) -> None:
    before = _endings(server)
    async with grpc.aio.insecure_channel(server.grpc_target) as channel:
        call = inference_pb2_grpc.InferenceStub(channel).StreamCompletion(_grpc_request())
        await call.read()

        call.cancel()

        assert _counted(server, before) == {"abort": 1}


async def test_a_grpc_deadline_ends_its_request(server: RunningServer) -> None:
    before = _endings(server)
    async with grpc.aio.insecure_channel(server.grpc_target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.CreateCompletion(_grpc_request(), timeout=0.5)

    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert _counted(server, before) in ENDED_LATE


async def test_the_timeout_header_ends_its_request(server: RunningServer) -> None:
    before = _endings(server)
    headers = {"x-request-timeout-seconds": "0.5"}
    async with _client(server) as client:
        answer = await client.post("/v1/completions", json=LONG, headers=headers)

    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "timeout_error"
    assert _counted(server, before) in ENDED_LATE


async def test_the_timeout_header_ends_a_stream_with_an_error(server: RunningServer) -> None:
    headers = {"x-request-timeout-seconds": "0.5"}
    body = LONG | {"stream": True}
    async with _client(server) as client:
        while True:
            answer = await client.post("/v1/completions", json=body, headers=headers)
            if answer.status_code == 200:
                break
            assert answer.status_code == 504  # it passed before the first token

    *chunks, last = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert chunks
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "timeout_error"


async def test_all_choices_end_with_their_stream(server: RunningServer) -> None:
    before = _endings(server)
    async with _client(server) as client:
        body = LONG | {"n": 3, "temperature": 1, "stream": True}
        call = asyncio.create_task(client.post("/v1/completions", json=body))
        await _running(server, 3)

        call.cancel()

    assert _counted(server, before) == {"abort": 3}


async def test_a_hundred_streams_cancelled_at_once(server: RunningServer) -> None:
    before = _endings(server)
    async with _client(server) as client:
        bodies = [LONG | {"prompt": f"Story {i}:", "stream": True} for i in range(100)]
        calls = [asyncio.create_task(client.post("/v1/completions", json=b)) for b in bodies]

        def all_there() -> bool:
            names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
            return sum(server.metric(name) for name in names) == 100

        assert await asyncio.to_thread(server.wait_until, all_there)
        for call in calls:
            call.cancel()

    assert _counted(server, before) == {"abort": 100}


async def test_those_who_stay_do_not_notice_those_who_leave(server: RunningServer) -> None:
    bodies = [SHORT | {"prompt": f"Chapter {i}.", "max_tokens": 24, "seed": i} for i in range(6)]
    bodies[1] |= {"temperature": 1}

    async def read(client: httpx.AsyncClient, body: dict, most: int) -> list[int]:
        """Reads `most` tokens of a stream, then goes away."""
        ids: list[int] = []
        async for part in _ids(client, body):
            ids += part
            if len(ids) >= most:
                break
        return ids

    async with _client(server) as client:
        solo = [await read(client, body, 24) for body in bodies]
        for stays in ({0, 1, 2}, {1, 5}, {3}):
            most = [24 if i in stays else 3 * i + 1 for i in range(6)]
            calls = [read(client, *call) for call in zip(bodies, most, strict=True)]
            answers = await asyncio.gather(*calls)
            assert [answers[i] for i in stays] == [solo[i] for i in stays]


async def test_every_request_is_counted_once_however_it_ends(server: RunningServer) -> None:
    before = _endings(server)
    outcomes = by_label(server, "octavo_router_requests_total", "outcome")
    hurried = {"x-request-timeout-seconds": "0.5"}
    async with _client(server) as client:

        def post(body: dict, **options) -> asyncio.Task:
            return asyncio.create_task(client.post("/v1/completions", json=body, **options))

        leaving = [post(LONG), post(LONG | {"stream": True})]
        late = [post(LONG, headers=hurried) for _ in range(2)]
        whole = [post(SHORT | {"n": 2, "temperature": 1}), post(SHORT), post(SHORT)]
        stopped = [post(SHORT | {"stop_token_ids": list(range(49_152))[:128], "max_tokens": 900})]
        bad = [post(SHORT | {"prompt": [99_999_999]}), post(SHORT | {"min_tokens": 9})]
        answers = await asyncio.gather(*late, *whole, *stopped, *bad)
        await _running(server, 2)
        for call in leaving:
            call.cancel()

    assert [answer.status_code for answer in answers] == [504] * 2 + [200] * 4 + [400] * 2
    counted = _counted(server, before)
    assert counted.pop("length") + counted.pop("stop", 0) == 5
    assert 2 <= counted.pop("abort") + counted.pop("timeout", 0) <= 4  # see ENDED_LATE
    assert counted == {}
    after = by_label(server, "octavo_router_requests_total", "outcome")
    told = {key: after[key] - outcomes.get(key, 0) for key in after}
    assert {key: value for key, value in told.items() if value} == {
        "ok": 4,
        "cancelled": 2,
        "deadline_exceeded": 2,
        "invalid_request": 2,
    }


async def test_a_full_queue_refuses_and_harms_nobody(smollm2_gguf: Path, tmp_path: Path) -> None:
    args = ("--max-model-len=2048", "--max-num-seqs=2", "--max-num-queued-reqs=2")
    pool = "--kv-cache-memory-bytes=200000000"
    with running_server(smollm2_gguf, *args, pool, log=tmp_path / "log") as small:

        def four_are_refused() -> bool:
            return small.metric("vllm:admission_rejections_total") == 4

        async with _client(small) as client:
            running = [
                asyncio.create_task(client.post("/v1/completions", json=LONG)) for _ in range(2)
            ]
            await _running(small, 2)
            calls = [client.post("/v1/completions", json=SHORT) for _ in range(6)]
            waiting = [asyncio.create_task(call) for call in calls]
            assert await asyncio.to_thread(small.wait_until, four_are_refused)
            for call in running:
                call.cancel()
            answers = await asyncio.gather(*waiting)
        assert small.wait_until(small.idle)
        reasons = by_label(small, "vllm:admission_rejections_total", "reason")

    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [429] * 4
    for answer in answers:
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["type"] == "rate_limit_error"
    assert reasons["queue_full"] == sum(reasons.values()) == 4


def _grpc_request() -> pb.CreateCompletionRequest:
    return pb.CreateCompletionRequest(
        prompt=pb.Prompt(text=LONG["prompt"]), max_tokens=1500, ignore_eos=True, temperature=0
    )
