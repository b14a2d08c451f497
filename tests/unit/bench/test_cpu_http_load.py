"""The load client, against a server that answers as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import orjson

from tests.bench.cpu.http_load import run_load
from tests.bench.cpu.work import Shape, Work

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _event(value: dict) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _work(num_requests: int = 1, concurrency: int = 1) -> Work:
    return Work(Shape(concurrency, num_requests, 4, 2), ("one two",) * num_requests, "")


@contextmanager
def _server(*pieces: bytes) -> Iterator[tuple[int, list[int]]]:
    """Sends these pieces to each request, one write at a time.

    Gives its port, and how many requests were in flight as each arrived.
    """
    port: Future[int] = Future()
    stop: Future[None] = Future()
    in_flight, seen = [0], []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        in_flight[0] += 1
        seen.append(in_flight[0])
        for piece in pieces[:-1]:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.005)
        in_flight[0] -= 1  # before the client can know that its answer is whole
        writer.write(pieces[-1])
        writer.close()
        await writer.wait_closed()

    async def serve() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port.set_result(server.sockets[0].getsockname()[1])
            await asyncio.wrap_future(stop)
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield port.result(10), seen
    finally:
        stop.set_result(None)
        thread.join()


USAGE = _event({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}})
DONE = b"data: [DONE]\n\n"


def test_events_are_read_wherever_the_network_cuts_them() -> None:
    first, second = (_event({"choices": [{"text": text}]}) for text in "ab")
    whole = _chunk(first + second) + _chunk(USAGE + DONE) + _chunk(b"")
    cut = whole.index(second) + 9
    with _server(HEAD, whole[:20], whole[20:cut], whole[cut:]) as (port, _):
        (sample,) = run_load(port, _work())

    assert sample.error is None
    assert (sample.prompt_tokens, sample.completion_tokens) == (4, 2)
    assert len(sample.arrivals) == 2
    assert sample.started < sample.arrivals[0] < sample.arrivals[1] <= sample.ended


def test_only_text_counts_as_an_arrival() -> None:
    role = _event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    text = _event({"choices": [{"delta": {"content": "hello"}}]})
    with _server(HEAD, _chunk(role), _chunk(text), _chunk(USAGE + DONE), _chunk(b"")) as (port, _):
        (sample,) = run_load(port, _work())

    assert len(sample.arrivals) == 1


def test_as_many_requests_are_in_flight_as_were_asked_for() -> None:
    text = _event({"choices": [{"text": "a"}]})
    with _server(HEAD, _chunk(text), _chunk(USAGE + DONE), _chunk(b"")) as (port, seen):
        samples = run_load(port, _work(num_requests=6, concurrency=3))

    assert [sample.error for sample in samples] == [None] * 6
    assert max(seen) == 3


def test_a_refusal_is_told_with_its_reason() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 12\r\n\r\nno such mode"
    with _server(answer) as (port, _):
        (sample,) = run_load(port, _work())

    assert sample.error == "HTTP 400: b'no such mode'"


def test_a_stream_that_breaks_off_is_a_failure() -> None:
    with _server(HEAD, _chunk(_event({"choices": [{"text": "a"}]}))) as (port, _):
        (sample,) = run_load(port, _work())

    assert sample.error is not None
    assert "connection was lost" in sample.error


def test_an_error_event_is_a_failure() -> None:
    with _server(HEAD, _chunk(_event({"error": {"message": "overloaded"}}))) as (port, _):
        (sample,) = run_load(port, _work())

    assert sample.error == "{'message': 'overloaded'}"
