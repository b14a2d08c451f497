"""An engine without a model: its contract over gRPC, and a script for tokens.

    python -m tests.bench.scripted_engine MODEL TARGET STEP_SECONDS COUNT_FILE

Every so many seconds each running request gets a token of an English text, all in one message as of
a real engine's step. A router that cannot follow makes it wait, by gRPC's own flow control.
COUNT_FILE is shared memory with the number of tokens sent so far.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc

from router_svc.text.tokenizer import Tokenizer
from tests.support.steady_telemetry import add_steady_telemetry

_TEXT = (
    "An octavo is a sheet folded into sixteen pages, about as large as a hand; printers of the "
    "sixteenth century made whole libraries that a traveller could carry. The text of a page was "
    "set letter by letter, proved, corrected, and set again: nothing was printed twice the same. "
)


class TokenCount:
    """A number in memory that processes share."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self._value = np.memmap(path, dtype=np.int64, mode="w+" if create else "r+", shape=(1,))

    @property
    def value(self) -> int:
        """The number."""
        return int(self._value[0])

    def add(self, tokens: int) -> None:
        """Counts more."""
        self._value[0] += tokens


class ScriptedEngine(engine_pb2_grpc.EngineServicer):
    """Answers sessions; every request has one choice and `max_tokens`."""

    def __init__(self, tokenizer: Tokenizer, step_seconds: float, sent: TokenCount) -> None:
        self._sent = sent
        self._tokenizer_sha256 = tokenizer.sha256
        self._vocab_size = tokenizer.vocab_size
        self._text = tokenizer.encode(_TEXT, add_special_tokens=False, parse_special=False)
        self._step_seconds = step_seconds

    async def GetModelInfo(self, _request, _context):  # noqa: N802 - gRPC's name
        return pb.GetModelInfoResponse(
            served_names=["scripted"], source="scripted", instance_id="scripted",
            max_model_len=1 << 20, vocab_size=self._vocab_size, max_num_seqs=1024, max_n=1,
            max_logprobs=0, tokenizer_sha256=self._tokenizer_sha256, weights_version="scripted",
            block_size=16, generates=True,
        )  # fmt: skip

    async def Session(self, requests, _context) -> AsyncIterator[pb.SessionResponse]:  # noqa: N802
        running: dict[int, list[int]] = {}  # stream id → tokens so far, and at most
        begun: list[int] = []

        async def read() -> None:
            async for frame in requests:
                if frame.WhichOneof("frame") == "submit":
                    running[frame.stream_id] = [0, frame.submit.stopping.max_tokens]
                    begun.append(frame.stream_id)
                else:
                    running.pop(frame.stream_id, None)

        reader = asyncio.create_task(read())
        try:
            for step in itertools.count(1):
                if message := self._step(running, begun):
                    yield message
                if step == 1:
                    started = asyncio.get_running_loop().time()
                pause = started + step * self._step_seconds - asyncio.get_running_loop().time()
                started -= min(0.0, pause)  # what is late is not made up for
                await asyncio.sleep(max(0.0, pause))
        finally:
            reader.cancel()

    def _step(self, running: dict[int, list[int]], begun: list[int]) -> pb.SessionResponse | None:
        if begun:
            message = pb.SessionResponse()
            for stream_id in begun:
                message.events.add(stream_id=stream_id).event.admitted.cached_tokens = 0
            begun.clear()
            return message
        if not running:
            return None
        text, count = self._text, len(running)
        self._sent.add(count)
        message = pb.SessionResponse(
            token_runs=pb.TokenRuns(
                stream_ids=running,
                choices=[0] * count,
                first_positions=[done for done, _ in running.values()],
                num_tokens=[1] * count,
                token_ids=[text[done % len(text)] for done, _ in running.values()],
            )
        )
        for stream_id, state in list(running.items()):
            state[0] += 1
            if state[0] == state[1]:
                finish = message.events.add(stream_id=stream_id).event.finish
                finish.reason = pb.FINISH_REASON_LENGTH
                finish.usage.completion_tokens = state[0]
                del running[stream_id]
        return message


async def serve(model: Path, target: str, step_seconds: float, count_file: Path) -> None:
    """Serves until it is cancelled."""
    server = grpc.aio.server()
    sent = TokenCount(count_file, create=True)
    engine = ScriptedEngine(Tokenizer.load(model), step_seconds, sent)
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    add_steady_telemetry(server)
    servicer = health.aio.HealthServicer()
    await servicer.set("octavo.engine.v1.Engine", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(target)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        model, target, step_seconds, count_file = sys.argv[1:]
        asyncio.run(serve(Path(model), target, float(step_seconds), Path(count_file)))
