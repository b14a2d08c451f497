"""What clients see when the engine dies and when the server is told to stop."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
import pytest
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support import plain_http
from tests.support.lent_model import LentModel
from tests.support.processes import engine_of
from tests.support.server import RunningServer, running_server

CHAT = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4, "temperature": 0}
LONG = {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "stream": True}
ENDLESS = LONG | {"max_tokens": 2000}


@contextmanager
def _serving(model: Path, directory: Path) -> Iterator[RunningServer]:
    args = ("--max-model-len=2048", "--kv-cache-memory-bytes=400000000")
    with running_server(model, *args, log=directory / "log") as server:
        yield server


def _get(server: RunningServer, path: str) -> httpx.Response:
    return plain_http.get(f"{server.url}{path}")


def _health(server: RunningServer) -> int:
    return _get(server, "/health").status_code


def _chat(server: RunningServer) -> httpx.Response:
    return plain_http.post(f"{server.url}/v1/chat/completions", json=CHAT)


async def _stream(server: RunningServer, body: dict, first: asyncio.Event) -> list[str]:
    """The data of a stream's events, to its end; `first` is set by the first of them."""
    events = []
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", f"{server.url}/v1/completions", json=body) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                events.append(line.removeprefix("data: "))
                first.set()
    return events


async def _start(server: RunningServer, body: dict, count: int) -> list[asyncio.Task[list[str]]]:
    """So many streams, each with its first event received."""
    begun = [asyncio.Event() for _ in range(count)]
    tasks = [
        asyncio.create_task(_stream(server, body | {"seed": i}, e)) for i, e in enumerate(begun)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    return tasks


def _error(events: list[str]) -> dict:
    return json.loads(events[-1])["error"]


async def test_an_engine_that_is_killed_is_started_again_and_answers_go_on(
    smollm2_gguf: Path, tmp_path: Path
) -> None:
    model = LentModel(smollm2_gguf, tmp_path)
    with _serving(model.path, tmp_path) as server:
        before = _chat(server).json()
        streams = await _start(server, LONG, 2)
        model.take_away()
        engine_of(server).kill()
        assert await asyncio.to_thread(server.wait_until, lambda: _health(server) == 503)
        refused = _chat(server)
        alive = _get(server, "/live")
        model.give_back()
        assert await asyncio.to_thread(server.wait_until, lambda: _health(server) == 200)
        after = _chat(server).json()
        survivors = await asyncio.gather(*streams)

    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert alive.status_code == 200
    assert [events[-1] for events in survivors] == ["[DONE]"] * 2
    assert after["choices"] == before["choices"]


async def test_a_drain_lets_streams_end_and_takes_no_more(
    smollm2_gguf: Path, tmp_path: Path
) -> None:
    with _serving(smollm2_gguf, tmp_path) as server:
        async with grpc.aio.insecure_channel(server.grpc_target) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            call = stub.StreamCompletion(_grpc_request(60))
            await call.read()
            streams = await _start(server, LONG, 8)

            server.process.send_signal(signal.SIGTERM)

            assert await asyncio.to_thread(server.wait_until, lambda: not _accepts(server))
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await stub.CreateCompletion(_grpc_request(1))
            ended = await asyncio.gather(*streams)
            last = None
            while (chunk := await call.read()) is not grpc.aio.EOF:
                last = chunk
        code = await asyncio.to_thread(server.process.wait)

    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
    assert [events[-1] for events in ended] == ["[DONE]"] * 8
    for events in ended:
        assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"
    assert last.choices[0].finish_reason == pb.FINISH_REASON_LENGTH
    assert code == 0


async def test_a_second_signal_ends_streams_with_an_error(
    smollm2_gguf: Path, tmp_path: Path
) -> None:
    with _serving(smollm2_gguf, tmp_path) as server:
        streams = await _start(server, ENDLESS, 2)
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait_until, lambda: not _accepts(server))

        server.process.send_signal(signal.SIGTERM)

        ended = await asyncio.gather(*streams)
        code = await asyncio.to_thread(server.process.wait)

    assert [_error(events)["message"] for events in ended] == ["the server is shutting down"] * 2
    assert code == 0


async def test_an_engine_that_is_told_to_stop_lets_its_streams_end(
    smollm2_gguf: Path, tmp_path: Path
) -> None:
    model = LentModel(smollm2_gguf, tmp_path)
    with _serving(model.path, tmp_path) as server:
        streams = await _start(server, LONG, 4)
        model.take_away()
        engine_of(server).send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait_until, lambda: _health(server) == 503)
        during = _chat(server).status_code
        ended = await asyncio.gather(*streams)
        model.give_back()
        assert await asyncio.to_thread(server.wait_until, lambda: _health(server) == 200)
        after = _chat(server).status_code

    assert [events[-1] for events in ended] == ["[DONE]"] * 4
    assert (during, after) == (503, 200)


def _accepts(server: RunningServer) -> bool:
    try:
        return _health(server) == 200
    except httpx.TransportError:
        return False


def _grpc_request(max_tokens: int) -> pb.CreateCompletionRequest:
    return pb.CreateCompletionRequest(
        prompt=pb.Prompt(text="Once upon a time"), max_tokens=max_tokens, ignore_eos=True
    )
