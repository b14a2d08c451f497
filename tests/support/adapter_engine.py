"""An engine with LoRA adapters that writes by them: what it says shows which one it has applied.

Token i of an answer is a letter that depends on the adapter's version, the prompt's length and i,
so that another engine goes on with it only if it has the same version and knows what came before.
"""

from __future__ import annotations

import asyncio
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.engine.v1 import admin_pb2, admin_pb2_grpc, engine_pb2_grpc, telemetry_pb2
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import telemetry_pb2_grpc as telemetry_grpc
from tokenizers import pre_tokenizers

PIECES = sorted(pre_tokenizers.ByteLevel.alphabet())
"""What tokens stand for, by their ids."""

_FAILED, _INVALID = (
    code.value[0]
    for code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
)


def letter(version: str, prompt_tokens: int, position: int) -> str:
    """What an answer has at a position."""
    return string.ascii_letters[(sum(version.encode()) + prompt_tokens + position) % 52]


def answer(version: str, prompt_tokens: int, length: int) -> str:
    """A whole answer; the version of none is ""."""
    return "".join(letter(version, prompt_tokens, i) for i in range(length))


class AdapterEngine(
    engine_pb2_grpc.EngineServicer,
    admin_pb2_grpc.AdminServicer,
    telemetry_grpc.TelemetryServicer,
):
    """Has `adapters`, name to version. A file at a path is what `files` says, path to version."""

    def __init__(
        self, tokenizer_sha256: str, adapters: dict[str, str], *, name: str = "base"
    ) -> None:
        self.info = pb.GetModelInfoResponse(
            served_names=[name],
            tokenizer_sha256=tokenizer_sha256,
            vocab_size=len(PIECES) + 1,
            max_model_len=4096,
            max_n=8,
            max_num_seqs=64,
            block_size=16,
            generates=True,
            source="base-files",
        )
        self.adapters = dict(adapters)
        self.files: dict[str, str] = {}
        self.num_asked = 0  # GetModelInfo
        self.submitted: list[pb.GenerateRequest] = []
        self.hold_after: int | None = None  # tokens of each answer that come before `go_on`
        self.go_on = asyncio.Event()
        self._cached: asyncio.Queue[bytes] = asyncio.Queue()
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.loading = False  # whether it was ever asked to
        self.load_failure: tuple[grpc.StatusCode, str] | None = None
        self.unload_failure: tuple[grpc.StatusCode, str] | None = None
        self._state = telemetry_pb2.ENGINE_STATE_READY
        self._revision = 0
        self._changed = asyncio.Condition()

    async def change(self, adapters: dict[str, str], *, tell: bool = True) -> None:
        """Has other adapters from now on; without `tell` the router has to find out."""
        self.adapters = dict(adapters)
        if tell:
            async with self._changed:
                self._revision += 1
                self._changed.notify_all()

    async def drain(self) -> None:
        """Says that it takes no more."""
        self._state = telemetry_pb2.ENGINE_STATE_DRAINING
        async with self._changed:
            self._changed.notify_all()

    async def GetModelInfo(self, request, context):  # noqa: N802 - gRPC's name
        self.num_asked += 1
        info = pb.GetModelInfoResponse()
        info.CopyFrom(self.info)
        for name, version in sorted(self.adapters.items()):
            info.adapters.add(name=name, version=version, rank=8, source=f"/adapters/{name}")
        return info

    async def Session(self, requests, context):  # noqa: N802 - gRPC's name
        outbox: asyncio.Queue[pb.SessionEvent | None] = asyncio.Queue()
        answering: dict[int, asyncio.Task[None]] = {}

        async def read() -> None:
            async for frame in requests:
                if frame.WhichOneof("frame") == "submit":
                    self.submitted.append(frame.submit)
                    task = asyncio.create_task(self._answer(frame, outbox))
                    answering[frame.stream_id] = task
                elif frame.stream_id in answering:
                    answering[frame.stream_id].cancel()

        reader = asyncio.create_task(read())
        try:
            while (event := await outbox.get()) is not None:
                yield pb.SessionResponse(events=[event])
        finally:
            for task in (reader, *answering.values()):
                task.cancel()

    async def _answer(
        self, frame: pb.SessionRequest, outbox: asyncio.Queue[pb.SessionEvent | None]
    ) -> None:
        request, version = frame.submit, self.adapters.get(frame.submit.lora, "")

        def tell(**event: object) -> None:
            response = pb.GenerateResponse(**event)  # type: ignore[arg-type]
            outbox.put_nowait(pb.SessionEvent(stream_id=frame.stream_id, event=response))

        if request.lora and (not version or version != request.expect.adapter_version):
            code = _FAILED if version else _INVALID
            status = pb.Failure(code=code, message="no such adapter here")
            if not version:
                status.status_details = _bad_field("lora")
            outbox.put_nowait(pb.SessionEvent(stream_id=frame.stream_id, failure=status))
            return
        tell(admitted=pb.Admitted(seed=1))
        done = len(request.resume[0].output_token_ids) if request.resume else 0
        for position in range(done, request.stopping.max_tokens):
            if position == self.hold_after:
                await self.go_on.wait()
            text = letter(version, len(request.prompt_token_ids), position)
            tell(delta=pb.Delta(first_position=position, token_ids=[PIECES.index(text)]))
        usage = pb.Usage(completion_tokens=request.stopping.max_tokens)
        tell(finish=pb.Finish(reason=pb.FINISH_REASON_LENGTH, usage=usage))

    async def WatchLoads(self, request, context):  # noqa: N802 - gRPC's name
        while True:
            yield telemetry_pb2.WatchLoadsResponse(state=self._state, info_revision=self._revision)
            async with self._changed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 1)

    async def tell_cached(self, hashes: bytes) -> None:
        """Says that it has the blocks of these names cached."""
        self._cached.put_nowait(hashes)

    async def WatchKvEvents(self, request, context):  # noqa: N802 - gRPC's name
        while True:
            yield telemetry_pb2.WatchKvEventsResponse(
                epoch="1", sequence=1, snapshot=True, stored=await self._cached.get(), block_size=16
            )

    async def LoadAdapter(self, request, context):  # noqa: N802 - gRPC's name
        self.loading = True
        await self.may_load.wait()
        if self.load_failure is not None:
            await context.abort(*self.load_failure)
        version = self.files.get(request.source, "")
        if not version:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"nothing at {request.source}")
        if self.adapters.get(request.name, version) != version:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "it has another of this name")
        await self.change(self.adapters | {request.name: version})
        return admin_pb2.LoadAdapterResponse()

    async def UnloadAdapter(self, request, context):  # noqa: N802 - gRPC's name
        if self.unload_failure is not None:
            await context.abort(*self.unload_failure)
        if request.name not in self.adapters:
            await context.abort(grpc.StatusCode.NOT_FOUND, "it has none of this name")
        await self.change({n: v for n, v in self.adapters.items() if n != request.name})
        return admin_pb2.UnloadAdapterResponse()


def _bad_field(name: str) -> bytes:
    violation = BadRequest.FieldViolation(field=name)
    status = Status(code=_INVALID)
    status.details.add().Pack(BadRequest(field_violations=[violation]))
    return status.SerializeToString()


@asynccontextmanager
async def served(
    engine: AdapterEngine, port: int = 0
) -> AsyncIterator[tuple[grpc.aio.Server, int]]:
    """The engine as a server that is ready, and its port."""
    server = grpc.aio.server()
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    admin_pb2_grpc.add_AdminServicer_to_server(engine, server)
    telemetry_grpc.add_TelemetryServicer_to_server(engine, server)
    servicer = health.aio.HealthServicer()
    await servicer.set("octavo.engine.v1.Engine", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield server, port
    finally:
        await server.stop(0)
