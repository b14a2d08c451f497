"""Sends requests to a server on this machine and times what comes back.

The client runs on the cores that the server is measured on, so it does little for each event: one
read of the clock for what arrives together, and libraries in C for HTTP and JSON.
"""

from __future__ import annotations

import asyncio
import gc
import time

import httptools
import orjson
import uvloop

from tests.bench.cpu.samples import Sample
from tests.bench.cpu.work import Work

TIMEOUT_SECONDS = 300.0


def run_load(port: int, work: Work) -> list[Sample]:
    """One sample per request, failures included, in order of their end."""
    requests = [_request(port, work.path, body) for body in work.bodies()]
    gc.collect()
    gc.disable()
    try:
        return uvloop.run(_closed_loop(port, requests, work.shape.concurrency))
    finally:
        gc.enable()


def _request(port: int, path: str, body: bytes) -> bytes:
    # A connection is used once: some servers close idle ones without a word.
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _closed_loop(port: int, requests: list[bytes], concurrency: int) -> list[Sample]:
    waiting = iter(requests)
    samples: list[Sample] = []

    async def worker() -> None:
        for request in waiting:
            sample = await _send(port, request)
            samples.append(sample)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return samples


async def _send(port: int, request: bytes) -> Sample:
    sample = Sample()
    loop = asyncio.get_running_loop()
    answer = _Answer(sample, loop.create_future())
    try:
        transport, _ = await loop.create_connection(lambda: answer, "127.0.0.1", port)
        transport.write(request)
        await asyncio.wait_for(answer.done, TIMEOUT_SECONDS)
        transport.close()
    except (OSError, TimeoutError) as error:
        sample.error = f"{type(error).__name__}: {error}"
    sample.ended = time.perf_counter()
    return sample


class _Answer(asyncio.Protocol):
    """Reads one answer, a stream of server-sent events, into its sample."""

    def __init__(self, sample: Sample, done: asyncio.Future[None]) -> None:
        self.done = done
        self._sample = sample
        self._parser = httptools.HttpResponseParser(self)
        self._pending = b""
        self._now = 0.0
        self._is_whole = False

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"no HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection was lost: {exc}")

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        *lines, self._pending = (self._pending + body).split(b"\n")
        if self._parser.get_status_code() != 200:
            self._pending = b"\n".join([*lines, self._pending])
            return
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def on_message_complete(self) -> None:
        """Called by the parser."""
        status = self._parser.get_status_code()
        if status != 200:
            self._end(f"HTTP {status}: {self._pending[:300]!r}")
        else:
            self._end(None if self._is_whole else "the stream ended without [DONE]")

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._is_whole = True
            return
        event = orjson.loads(data)
        if "error" in event:
            self._end(str(event["error"])[:300])
            return
        for choice in event.get("choices", ()):
            if choice.get("text") or choice.get("delta", {}).get("content"):
                self._sample.arrivals.append(self._now)
        if usage := event.get("usage"):
            self._sample.prompt_tokens = usage["prompt_tokens"]
            self._sample.completion_tokens = usage["completion_tokens"]

    def _end(self, error: str | None) -> None:
        if not self.done.done():
            self._sample.error = error
            self.done.set_result(None)
