"""A router's connection to one engine: one channel, one `Session` stream, many requests.

The session's reader never waits for a client: each request has its own queue, bounded in tokens,
and a request whose client lets the queue fill up is cancelled with a clear error. When the session
breaks, or the engine, which tells its load at least every second, falls silent, every request on it
fails at once, and the channel connects again by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo.engine.v1 import engine_pb2 as pb
from octavo.engine.v1 import engine_pb2_grpc, telemetry_pb2, telemetry_pb2_grpc

from router_svc.engines.dialer import Dialer, explain_failure
from router_svc.engines.encoder_calls import EncoderCalls
from router_svc.engines.info import EngineInfo, EngineLoad, EngineMismatchError
from router_svc.engines.known_info import KnownInfo
from router_svc.engines.messages import (
    to_error,
    to_event,
    to_generate_request,
    to_prompt_logprobs,
    token_runs,
)
from router_svc.engines.pace import Pace
from router_svc.engines.request_stream import RequestStream
from router_svc.errors import ApiError, ErrorKind
from router_svc.generation_types import EngineDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from router_svc.engines.encoder_types import EncoderInput, EncoderRequest
    from router_svc.generation_types import Adapter, GenerationRequest

log = logging.getLogger(__name__)

_ENGINE_SERVICE = pb.DESCRIPTOR.services_by_name["Engine"].full_name
_MAX_MESSAGE_BYTES = 64 << 20
_CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # A silent prefill may last minutes; pings notice a peer that is gone without a FIN.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
]
_RETRY_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0)
# Some 9 s; what listens on a machine of its own is up by then. A local engine tells what it does.
_PATIENT_FAILURES = 12
# An engine tells its load every second; one that is merely busy does too.
_SILENCE_SECONDS = 7.5
_TICK_SECONDS = 0.5


class EngineSilentError(Exception):
    """The engine said nothing for too long."""


class EngineChannel:
    """One engine, reached at `target` ("unix:/path" or "host:port").

    An engine whose model has another tokeniser than `tokenizer_sha256` is never ready: its tokens
    would mean other text. Nor is one that `check` refuses by EngineMismatchError. `on_info` and
    `on_load` are called when the engine has told of itself, and of its load; `follow` runs over
    each connection. One `pace` is for all engines of a process.
    """

    def __init__(
        self,
        target: str,
        tokenizer_sha256: str,
        *,
        dialer: Dialer | None = None,
        pace: Pace | None = None,
        check: Callable[[EngineInfo], None] | None = None,
        on_ready: Callable[[EngineInfo], None] | None = None,
        on_info: Callable[[], None] | None = None,
        on_load: Callable[[], None] | None = None,
        follow: Callable[[grpc.aio.Channel], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.target = target
        self._dialer = dialer or Dialer()
        self._pace = pace or Pace()
        self._complaint: str | None = None  # what was last logged of why there is no connection
        self.load = EngineLoad()
        self._silent_ticks = 0  # since the engine was last heard
        self.draining = False
        self.stalled = False  # its steps hang, though it answers
        self.ready_since = 0.0  # time.monotonic()
        self.num_generated = 0  # tokens that came from the engine so far
        self._on_load = on_load
        self._follow = follow
        self._tokenizer_sha256 = tokenizer_sha256
        self._known = KnownInfo(target, tokenizer_sha256, check, on_info)
        self._on_ready = on_ready
        self._streams: dict[int, RequestStream] = {}
        self._encoder_calls = EncoderCalls()
        self._ids = itertools.count(1)
        self._outbox: asyncio.Queue[pb.SessionRequest] | None = None
        self._connected = False  # to an engine whose model was found to fit
        self._serving: bool | None = None  # what it has said of that over this connection
        self._channel: grpc.aio.Channel | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def info(self) -> EngineInfo | None:
        """What the engine said of itself last, also while it is away."""
        return self._known.current

    @property
    def ready(self) -> bool:
        """Whether requests can be submitted now: it is connected and says that it serves."""
        return self._serving is True

    @property
    def in_use(self) -> bool:
        """Whether it is connected and has not said that it does not serve."""
        return self._connected and self._serving is not False

    @property
    def num_in_flight(self) -> int:
        """Requests submitted and not ended."""
        return len(self._streams) + len(self._encoder_calls)

    def start(self) -> None:
        """Connects in the background, and again whenever the connection is lost."""
        self._task = asyncio.create_task(self._stay_connected())

    async def close(self) -> None:
        """Ends the session; requests on it fail."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def submit(self, request: GenerationRequest) -> RequestStream:
        """Starts a request; see `generation.EngineClient`."""
        stream_id = next(self._ids)
        num_finished = sum(resumed.finished for resumed in request.resume)
        stream = RequestStream(
            tuple(request.prompt_token_ids),
            request.n - num_finished,
            lambda choice: self._cancel(stream_id, choice),
            request.adapter,
        )
        if self._outbox is None:
            stream.fail(ApiError(ErrorKind.UNAVAILABLE, "no engine is ready"))
            return stream
        self._streams[stream_id] = stream
        submit = to_generate_request(request, self._known.default_sampling)
        submit.expect.tokenizer_sha256 = self._tokenizer_sha256
        if self.info is not None:
            submit.expect.weights_version = self.info.weights_version
        self._outbox.put_nowait(
            pb.SessionRequest(stream_id=stream_id, submit=submit, accepts_token_runs=True)
        )
        return stream

    async def embed(
        self, request: EncoderRequest, inputs: Iterable[EncoderInput]
    ) -> list[Sequence[float]]:
        """One vector an input, in their order; see `EncoderCalls.run`."""
        if self._channel is None or not self._serving:
            raise ApiError(ErrorKind.UNAVAILABLE, "no engine is ready")
        return await self._encoder_calls.run(self._channel, request, inputs, self._tokenizer_sha256)

    def fail_all(
        self, error: ApiError, which: Callable[[Adapter | None], bool] = lambda _: True
    ) -> None:
        """Ends every request with an error, and aborts it in the engine if that still hears.

        Or only those whose adapter `which` accepts; encoders have none.
        """
        if which(None):
            self._encoder_calls.fail_all(error)
        for stream_id, stream in list(self._streams.items()):
            if not which(stream.adapter):
                continue
            del self._streams[stream_id]
            if self._outbox is not None:
                self._outbox.put_nowait(
                    pb.SessionRequest(stream_id=stream_id, cancel=pb.CancelFrame())
                )
            stream.fail(error)

    @property
    def connection(self) -> grpc.aio.Channel | None:
        """What calls go over; None while there is no connection."""
        return self._channel

    def lacks(self, adapter: Adapter) -> None:
        """The engine has refused a request for an adapter; see `KnownInfo.lacks`."""
        self._known.lacks(adapter)

    async def ask_again(self) -> EngineInfo | None:
        """What the engine says of itself now, None without a connection; see `KnownInfo.ask`."""
        return None if self._channel is None else await self._known.ask(self._channel)

    async def metrics(self) -> bytes:
        """The engine's Prometheus metrics. Raises grpc.aio.AioRpcError if it does not answer."""
        if self._channel is None:
            return b""
        stub = telemetry_pb2_grpc.TelemetryStub(self._channel)
        answer = await stub.GetMetrics(telemetry_pb2.GetMetricsRequest(), timeout=2.0)
        return answer.exposition

    def _cancel(self, stream_id: int, choice: int | None) -> None:
        if stream_id not in self._streams or self._outbox is None:
            return
        frame = pb.SessionRequest(stream_id=stream_id, cancel=pb.CancelFrame(choice=choice))
        self._outbox.put_nowait(frame)
        if choice is None:
            del self._streams[stream_id]

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            refusal: grpc.aio.AioRpcError | None = None
            mismatch: EngineMismatchError | None = None
            try:
                async with self._dialer.channel(self.target, _CHANNEL_OPTIONS) as channel:
                    self._channel = channel
                    info = await self._known.begin(channel)
                    failures, self._connected = 0, True
                    await self._serve(channel, info)
                log.warning("engine %s closed the session", self.target)
            except grpc.aio.AioRpcError as error:
                if failures == 0 and self.info is not None:
                    log.warning("engine %s lost: %s", self.target, error.details())
                elif failures == _PATIENT_FAILURES and not self.target.startswith("unix:"):
                    log.warning("engine %s cannot be reached: %s", self.target, error.details())
                refusal = error
            except EngineMismatchError as error:
                mismatch = error
            except EngineSilentError as error:
                log.warning("engine %s is given up: %s", self.target, error)
            except Exception:  # whatever one message broke, the next session may work
                log.exception("the session with engine %s broke", self.target)
            finally:
                self._channel = None
                self._outbox = None
                self._connected, self._serving = False, None
                self.fail_all(ApiError(ErrorKind.UNAVAILABLE, "the engine was lost"))
            await self._explain(refusal, mismatch)
            await asyncio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
            failures += 1

    async def _explain(
        self, refusal: grpc.aio.AioRpcError | None, mismatch: EngineMismatchError | None
    ) -> None:
        """Says once what waiting will not mend."""
        complaint = None if mismatch is None else f"is not used: {mismatch}"
        if refusal is not None:
            fault = await explain_failure(self._dialer, self.target, refusal)
            complaint = None if fault is None else f"cannot be used: {fault}"
        if complaint is not None and complaint != self._complaint:
            log.error("engine %s %s", self.target, complaint)
        self._complaint = complaint

    async def _serve(self, channel: grpc.aio.Channel, info: EngineInfo) -> None:
        """Lets requests through until the connection breaks or the engine falls silent."""
        watches = [
            asyncio.create_task(self._known.follow(channel)),
            asyncio.create_task(self._follow_health(channel, info)),
            asyncio.create_task(self._follow_loads(channel)),
            asyncio.create_task(self._notice_silence()),
        ]
        if self._follow is not None:
            watches.append(asyncio.create_task(self._follow(channel)))
        if info.generates:
            watches.append(asyncio.create_task(self._run_session(channel)))
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _run_session(self, channel: grpc.aio.Channel) -> None:
        outbox: asyncio.Queue[pb.SessionRequest] = asyncio.Queue()
        call = engine_pb2_grpc.EngineStub(channel).Session()

        async def write() -> None:
            try:
                while True:
                    await call.write(await outbox.get())
            finally:
                call.cancel()  # which ends the reader too

        # Not a request iterator: grpc leaves its task and generator behind when a call breaks.
        writer = asyncio.create_task(write())
        self._outbox = outbox
        try:
            async for message in call:
                self._dispatch_runs(message.token_runs)
                self.num_generated += len(message.token_runs.token_ids)
                for event in message.events:
                    self._dispatch(event)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            call.cancel()

    async def _follow_health(self, channel: grpc.aio.Channel, info: EngineInfo) -> None:
        """Lets requests through while the engine says that it serves.

        Not before: one that is about to go still lets itself be connected to.
        """
        request = health_pb2.HealthCheckRequest(service=_ENGINE_SERVICE)
        stub = health_pb2_grpc.HealthStub(channel)
        answers = stub.Watch(request)  # type: ignore[attr-defined] # its published types lack it
        told = False
        async for answer in answers:
            serves = answer.status == health_pb2.HealthCheckResponse.SERVING
            if serves and not self._serving:
                self.ready_since = time.monotonic()
            self._serving = serves
            if serves and not told and self._on_ready is not None:
                told = True
                self._on_ready(info)

    async def _notice_silence(self) -> None:
        """Ends when the engine has said nothing for too long.

        Counted in turns of this loop: where this process itself got no time, what came meanwhile is
        still to be read, and says nothing of the engine.
        """
        self._silent_ticks = 0
        while self._silent_ticks < _SILENCE_SECONDS / _TICK_SECONDS:
            await asyncio.sleep(_TICK_SECONDS)
            self._silent_ticks += 1
        raise EngineSilentError(f"nothing came for {_SILENCE_SECONDS:g} s")

    async def _follow_loads(self, channel: grpc.aio.Channel) -> None:
        stub = telemetry_pb2_grpc.TelemetryStub(channel)
        async for answer in stub.WatchLoads(telemetry_pb2.WatchLoadsRequest()):
            self._silent_ticks = 0
            self._known.heard(answer.info_revision)
            self.draining = answer.state == telemetry_pb2.ENGINE_STATE_DRAINING
            self.stalled = answer.state == telemetry_pb2.ENGINE_STATE_STALLED
            self.load = EngineLoad(
                num_running=answer.num_running,
                num_waiting=answer.num_waiting,
                num_uncomputed_tokens=answer.num_uncomputed_tokens,
                num_free_blocks=answer.num_free_blocks,
                num_blocks=answer.num_blocks,
                step_seconds=answer.step_seconds,
                received_at=time.monotonic(),
            )
            if self._on_load is not None:
                self._on_load()

    def _dispatch_runs(self, runs: pb.TokenRuns) -> None:
        told = set()
        for stream_id, choice, first_position, token_ids in token_runs(runs):
            stream = self._streams.get(stream_id)
            if stream is not None:
                stream.push_tokens(choice, first_position, token_ids)
                told.add(stream)
        self._pace.wake(told)

    def _dispatch(self, event: pb.SessionEvent) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return  # cancelled here; the engine had not heard of it yet
        if event.WhichOneof("outcome") == "failure":
            del self._streams[event.stream_id]
            stream.fail(to_error(event.failure))
        elif event.event.WhichOneof("event") == "prompt_logprobs":
            stream.push(to_prompt_logprobs(event.event.prompt_logprobs, stream.prompt))
        elif (translated := to_event(event.event)) is not None:
            if isinstance(translated, EngineDelta):
                self.num_generated += len(translated.token_ids)
            stream.push(translated)
            if stream.num_unfinished == 0:
                self._streams.pop(event.stream_id, None)


async def wait_ready(channel: EngineChannel, seconds: float) -> EngineInfo | None:
    """The engine's information once it is ready, or None after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        if channel.ready:
            return channel.info
        await asyncio.sleep(0.02)
    return None
