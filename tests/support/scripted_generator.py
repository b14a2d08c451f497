"""A router with keys and limits over an engine in the same process that does as a test says.

A token is a byte, and a chat is rendered as its messages' texts, so that tokens are easy to count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import tokenizers
from google.protobuf.any_pb2 import Any as PackedAny
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from octavo.engine.v1 import engine_pb2 as pb
from tokenizers import decoders, models, pre_tokenizers

from router_svc.edge import Edge
from router_svc.fleet.fleet import Fleet
from router_svc.output_formats import OutputFormats
from router_svc.served_model import ServedModel
from router_svc.server import Router, RouterConfig
from router_svc.text.chat_template import ChatTemplate
from router_svc.text.tokenizer import Tokenizer
from tests.support.scripted_encoder_engine import ScriptedEncoder, serve_encoder
from tests.support.server import free_port

_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


class ScriptedGenerator(ScriptedEncoder):
    """Writes "a" until max_tokens, or hangs or breaks after so many tokens, or refuses all."""

    def __init__(self, tokenizer_sha256: str) -> None:
        super().__init__(
            tokenizer_sha256, max_model_len=4096, generates=True, max_n=8, max_num_seqs=64
        )
        self.info.vocab_size = len(_ALPHABET)
        self.submitted: list[pb.GenerateRequest] = []
        self.was_cancelled = asyncio.Event()
        self.hang_after: int | None = None
        self.break_after: int | None = None
        self.full = False

    def be_full(self, retry_seconds: float) -> None:
        """From now on refuses everything as an engine with a full queue does."""
        self.full = True
        self._status = _queue_full(retry_seconds)
        self.refusal = rpc_status.to_status(self._status)

    async def Session(self, requests, context):  # noqa: N802 - gRPC's name
        async for frame in requests:
            if frame.WhichOneof("frame") == "cancel":
                self.was_cancelled.set()
            if frame.WhichOneof("frame") != "submit":
                continue
            self.submitted.append(frame.submit)
            if self.full:
                failure = pb.Failure(
                    code=self._status.code,
                    message=self._status.message,
                    status_details=self._status.SerializeToString(),
                )
                yield pb.SessionResponse(
                    events=[pb.SessionEvent(stream_id=frame.stream_id, failure=failure)]
                )
                continue
            if self.hang_after == 0:
                continue
            yield _events(frame.stream_id, pb.GenerateResponse(admitted=pb.Admitted()))
            wanted = frame.submit.stopping.max_tokens
            most = min(n for n in (wanted, self.hang_after, self.break_after) if n is not None)
            delta = pb.Delta(token_ids=[_ALPHABET.index("a")] * most)
            yield _events(frame.stream_id, pb.GenerateResponse(delta=delta))
            if self.break_after is not None:
                self.info.tokenizer_sha256 = "lost"  # it does not come back as what it was
                await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            if most == wanted:
                usage = pb.Usage(completion_tokens=most)
                finish = pb.Finish(reason=pb.FINISH_REASON_LENGTH, usage=usage)
                yield _events(frame.stream_id, pb.GenerateResponse(finish=finish))


@dataclass
class Edges:
    """Where a router is reached, and its engine."""

    url: str
    grpc_target: str
    engine: ScriptedGenerator


@asynccontextmanager
async def scripted_router(directory: Path, edge: Edge) -> AsyncIterator[Edges]:
    """A whole router on ports of its own, until the block ends."""
    tokenizer = Tokenizer.load(_write_tokenizer(directory))
    engine = ScriptedGenerator(tokenizer.sha256)
    server, target = await serve_encoder(engine)
    fleet = Fleet(tokenizer.sha256)
    fleet.add(target)
    formats = OutputFormats(None, None, False)
    model = ServedModel(fleet, tokenizer, ChatTemplate(_TEMPLATE, tokenizer), formats)
    http_port, grpc_port = free_port(), free_port()
    router = Router(RouterConfig("127.0.0.1", http_port, grpc_port, 1 << 20, 1.0, edge), [model])
    await router.start()
    running = asyncio.create_task(router.run())
    await fleet.wait_ready(60)
    try:
        yield Edges(f"http://127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}", engine)
    finally:
        router.stop()
        await running
        await router.close()
        await fleet.close()
        await server.stop(0)
        await asyncio.sleep(0)  # the stopped servers have a last word


def _write_tokenizer(directory: Path) -> Path:
    backend = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(_ALPHABET)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.save(str(directory / "tokenizer.json"))
    return directory


def _events(stream_id: int, event: pb.GenerateResponse) -> pb.SessionResponse:
    return pb.SessionResponse(events=[pb.SessionEvent(stream_id=stream_id, event=event)])


def _queue_full(retry_seconds: float) -> Status:
    delay = Duration()
    delay.FromMilliseconds(round(retry_seconds * 1000))
    status = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="the queue is full")
    for detail in (ErrorInfo(reason="QUEUE_FULL"), RetryInfo(retry_delay=delay)):
        packed = PackedAny()
        packed.Pack(detail)
        status.details.append(packed)
    return status
