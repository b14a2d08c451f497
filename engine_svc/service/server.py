"""Serves a loaded engine over gRPC, from ready to the last stream.

a first signal    drain: health NOT_SERVING at once, new requests refused, running ones finish
a second signal   stop now: running requests end with UNAVAILABLE
engine's fault    stop now, exit code 1
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from octavo.endings import ending_signals
from octavo.engine.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    engine_pb2,
    engine_pb2_grpc,
    telemetry_pb2,
    telemetry_pb2_grpc,
)
from octavo.grpc_metrics import CountCalls
from octavo.listening import is_answered, why_not

from engine_svc.adapters.registry import Adapters
from engine_svc.encoder_startup import LoadedEncoder
from engine_svc.encoding.loop import EncoderLoop
from engine_svc.engine import Engine
from engine_svc.scheduling.request import RequestStatus
from engine_svc.service.admission import Admission
from engine_svc.service.async_encoder import AsyncEncoder
from engine_svc.service.async_engine import AsyncEngine
from engine_svc.service.embedding import MAX_INPUTS, EmbedAdmission, embed_limits
from engine_svc.service.encoder_servicer import EncoderServicer
from engine_svc.service.health import EngineHealth
from engine_svc.service.metrics import EngineMetrics
from engine_svc.service.metrics_state import AdapterState
from engine_svc.service.servicers import AdminServicer, EngineServicer, TelemetryServicer

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from octavo.tracing import Tracing

    from engine_svc.config import BatchConfig, RequestPolicy, ServiceConfig
    from engine_svc.constraints.compiler import GrammarCompiler
    from engine_svc.engine import Load
    from engine_svc.service.tracing import RequestTracer
    from engine_svc.startup import LoadedEngine

log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 64 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    # Clients ping every 30 s or so, also while nothing is sent; none is told to go away for it.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Notices peers that vanished without closing their connection.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, not a share of its traffic
)
_SERVICES = tuple(
    service.full_name
    for module in (engine_pb2, telemetry_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)
_UPKEEP_SECONDS = 0.5
_READING_SECONDS = 0.1  # for clients to read the last they were sent
_STOP_SECONDS = 5.0  # for streams to carry their last messages, and for the last step
_FAILED_STEP_SECONDS = 1.0  # for a step after a fault, which may never end


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """What tests make small. Durations are in seconds."""

    max_unsent_tokens: int = 8192
    heartbeat_seconds: float = 10.0
    upkeep_seconds: float = _UPKEEP_SECONDS


class AddressInUseError(Exception):
    """The address cannot be listened on."""


class EngineServer:
    """The gRPC server around one engine."""

    def __init__(
        self,
        loaded: LoadedEngine | LoadedEncoder,
        service: ServiceConfig,
        batch: BatchConfig,
        policy: RequestPolicy,
        options: ServingOptions | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """Must be made on the event loop that will run it."""
        self._service = service
        self._options = options or ServingOptions()
        info = loaded.model_info
        health_servicer = health.aio.HealthServicer()
        self._grammars: GrammarCompiler | None = None
        tracer = _tracer(tracing, info)
        self.engine: AsyncEngine | AsyncEncoder
        servicer: EngineServicer | EncoderServicer
        if isinstance(loaded, LoadedEncoder):
            metrics, self.engine, servicer = _encoder_parts(loaded, service, batch, tracer)
            adapters = Adapters(None, lambda _: None, (), lambda: None)
        else:
            self._grammars = loaded.grammars
            metrics, self.engine, servicer, adapters = _generator_parts(
                loaded, service, batch, policy, self._options, tracer
            )
        self._health = EngineHealth(self.engine, health_servicer, _SERVICES)
        names = (
            *_SERVICES,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name,
            reflection.SERVICE_NAME,
        )
        counting = CountCalls(metrics.registry, names, metrics.labels)
        self._server = grpc.aio.server(interceptors=[counting], options=_OPTIONS)
        engine_pb2_grpc.add_EngineServicer_to_server(servicer, self._server)
        telemetry_pb2_grpc.add_TelemetryServicer_to_server(
            TelemetryServicer(self.engine, self._health, metrics, adapters, info.instance_id),
            self._server,
        )
        admin_pb2_grpc.add_AdminServicer_to_server(
            AdminServicer(self.engine, self._health, adapters), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(health_servicer, self._server)
        channelz.add_channelz_servicer(self._server)
        reflection.enable_server_reflection(names, self._server)
        self._upkeep: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listens and serves; returns the address, with the port that was chosen for port 0.

        Raises AddressInUseError.
        """
        address = self._service.listen
        if is_answered(address):
            raise AddressInUseError(f"cannot listen on {address}: {why_not(address)}")
        try:
            if self._service.tls is None:
                port = self._server.add_insecure_port(address)
            else:
                credentials = self._service.tls.grpc_credentials()
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            message = f"cannot listen on {address}: {why_not(address)}"
            raise AddressInUseError(message) from error
        self.engine.start()
        await self._health.refresh()
        await self._server.start()
        self._upkeep = asyncio.create_task(self._keep_up())
        if self._grammars is not None:
            self._grammars.warm_up()  # only now: being ready does not wait for it
        if address.startswith("unix:"):
            return address
        return f"{address.rpartition(':')[0]}:{port}"

    async def drain(self, seconds: float) -> bool:
        """Refuses new requests and waits for the running ones; whether all ended in time."""
        self.engine.start_draining()
        await self._health.refresh()
        try:
            async with asyncio.timeout(seconds):
                await self.engine.drained()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Ends what is left with UNAVAILABLE, lets it be sent, and closes."""
        self.engine.start_draining()
        await self._health.refresh()
        self.engine.end_all()
        self.engine.closing.set()
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        # gRPC drops what a client has not read when it writes to a connection that is closed.
        await asyncio.sleep(_READING_SECONDS)
        await self._server.stop(_STOP_SECONDS)
        if self._grammars is not None:
            self._grammars.close()
        patience = _FAILED_STEP_SECONDS if self.engine.failed.is_set() else _STOP_SECONDS
        if not await asyncio.to_thread(self.engine.stop, patience):
            log.error("the engine's loop did not end within %g s", patience)

    async def run_until_signalled(self) -> int:
        """Serves until a signal or a fault, then drains and stops; returns the exit code."""
        signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        numbers = ending_signals()
        loop = asyncio.get_running_loop()
        for number in numbers:
            loop.add_signal_handler(number, signals.put_nowait, number)
        failed = asyncio.create_task(self.engine.failed.wait())
        try:
            first = asyncio.create_task(signals.get())
            await asyncio.wait((first, failed), return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                log.info("%s: draining; a second signal stops at once", first.result().name)
                await self._drain_until((asyncio.create_task(signals.get()), failed))
            first.cancel()
            await self.stop()
            return 1 if self.engine.failed.is_set() else 0
        finally:
            failed.cancel()
            for number in numbers:
                loop.remove_signal_handler(number)

    async def _drain_until(self, interrupts: tuple[asyncio.Task[Any], ...]) -> None:
        timeout = self._service.shutdown_timeout
        drain = asyncio.create_task(self.drain(timeout))
        await asyncio.wait((drain, *interrupts), return_when=asyncio.FIRST_COMPLETED)
        if not drain.done():
            log.warning("stopping before all requests have ended")
        elif not drain.result():
            log.warning("requests were left after --shutdown-timeout %g s", timeout)
        for task in (drain, *interrupts):
            task.cancel()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(self._options.upkeep_seconds)
            await self._health.refresh()
            self.engine.send_heartbeats(self._options.heartbeat_seconds)


def _seed_source(base: int | None) -> Callable[[], int]:
    """Seeds for requests that give none: from the system's entropy, or a repeatable series."""
    if base is None:
        return lambda: secrets.randbits(64)
    series = random.Random(base)
    return lambda: series.getrandbits(64)


def _metrics(
    info: engine_pb2.GetModelInfoResponse,
    load: Callable[[], Load],
    adapters: Callable[[], AdapterState] = AdapterState,
) -> EngineMetrics:
    return EngineMetrics(
        model_name=info.served_names[0],
        engine=info.instance_id[:8],
        max_model_len=info.max_model_len,
        load=load,
        cache_config={
            "block_size": str(info.block_size),
            "num_gpu_blocks": str(info.num_blocks),
            "cache_dtype": "auto",
        },
        adapters=adapters,
    )


def _tracer(tracing: Tracing | None, info: engine_pb2.GetModelInfoResponse) -> RequestTracer | None:
    if tracing is None:
        return None
    # Only here: it loads OpenTelemetry.
    from engine_svc.service.tracing import RequestTracer

    return RequestTracer(tracing, model_name=info.served_names[0], instance_id=info.instance_id)


def _generator_parts(
    loaded: LoadedEngine,
    service: ServiceConfig,
    batch: BatchConfig,
    policy: RequestPolicy,
    options: ServingOptions,
    tracer: RequestTracer | None,
) -> tuple[EngineMetrics, AsyncEngine, EngineServicer, Adapters]:
    info = loaded.model_info
    loop = Engine(loaded.scheduler, loaded.kv, loaded.executor)
    loaded.watch(loop.lose_worker)
    metrics = _metrics(
        info,
        lambda: loop.load,
        lambda: AdapterState(
            adapters.most,
            adapters.named(RequestStatus.RUNNING),
            adapters.named(RequestStatus.WAITING),
        ),
    )
    engine = AsyncEngine(
        loop,
        metrics,
        instance_id=info.instance_id,
        block_size=info.block_size,
        max_live_choices=batch.max_num_seqs
        + max(batch.max_num_queued_reqs, info.max_n, MAX_INPUTS),
        stall_timeout=service.stall_timeout,
        tracer=tracer,
    )
    adapters = Adapters(
        loaded.adapters, loop.send, (engine.failed, engine.closing), engine.notify_watchers
    )
    servicer = EngineServicer(
        engine,
        Admission(loaded.limits, _seed_source(policy.seed), loaded.grammars, metrics, adapters),
        EmbedAdmission(embed_limits(loaded.limits), metrics),
        info,
        adapters,
        options.max_unsent_tokens,
    )
    return metrics, engine, servicer, adapters


def _encoder_parts(
    loaded: LoadedEncoder,
    service: ServiceConfig,
    batch: BatchConfig,
    tracer: RequestTracer | None,
) -> tuple[EngineMetrics, AsyncEncoder, EncoderServicer]:
    loop = EncoderLoop(
        loaded.encoder,
        max_step_tokens=loaded.max_step_tokens,
        max_step_inputs=batch.max_num_seqs,
    )
    metrics = _metrics(loaded.model_info, lambda: engine.load)
    engine = AsyncEncoder(
        loop,
        metrics,
        max_queued_inputs=batch.max_num_queued_reqs,
        max_queued_tokens=batch.max_num_queued_tokens,
        stall_timeout=service.stall_timeout,
        tracer=tracer,
    )
    admission = EmbedAdmission(loaded.limits, metrics)
    return metrics, engine, EncoderServicer(engine, admission, loaded.model_info)
