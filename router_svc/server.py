"""The router process: HTTP and gRPC over one handler, on one event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
import uvicorn
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from octavo.endings import ending_signals
from octavo.grpc_metrics import CountCalls
from octavo.listening import reason_of, why_not

from router_svc.admission.http import AdmitRequest
from router_svc.admission.rpc import AdmitCall
from router_svc.auth.rpc import KeyInterceptor
from router_svc.drain import HttpServer, RefuseLateRequests, shutting_down
from router_svc.edge import Edge
from router_svc.fleet.metrics import FleetCollector
from router_svc.http.app import build_app
from router_svc.http.exchange import HttpSettings
from router_svc.http.protocol import LimitedProtocol
from router_svc.metrics import RouterMetrics
from router_svc.models import Models
from router_svc.ops import ops_routes
from router_svc.services import public_services

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from octavo.tls import ServerTls
    from prometheus_client import Metric
    from starlette.applications import Starlette

    from router_svc.admission.account import NewBucket
    from router_svc.metrics import Summing
    from router_svc.page.files import Page
    from router_svc.served_model import ServedModel
    from router_svc.tracing.telemetry import Telemetry

log = logging.getLogger(__name__)

_OPERATING_SERVICES = (health.SERVICE_NAME, reflection.SERVICE_NAME, "grpc.channelz.v1.Channelz")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_POLL_SECONDS = 0.05
_LAST_SECONDS = 1.0  # for what has ended to reach its client


def _listen(host: str, port: int, *, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048, reuse_port=shared)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port} for HTTP: {reason_of(error)}") from error


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Where the router listens and what it accepts. Sizes are in bytes, durations in seconds.

    `shares_ports`: other processes of the same user may listen on them too. `page`: what is shown
    to browsers, if anything is. `allow_lora_updates`: whether clients may load and unload adapters.
    `new_bucket`: of limits that several processes share; without it they are this one's own.
    """

    host: str
    port: int
    grpc_port: int
    max_body_bytes: int
    shutdown_timeout: float
    edge: Edge = field(default_factory=Edge)
    tls: ServerTls | None = None
    # Clients that ping every ten seconds during a silent prefill are welcome.
    ping_seconds: float = 5.0
    shares_ports: bool = False
    page: Page | None = None
    allow_lora_updates: bool = False
    new_bucket: NewBucket | None = None


class Router:
    """Serves models until told to stop; a drain finishes what has begun."""

    def __init__(
        self,
        config: RouterConfig,
        models: Sequence[ServedModel],
        summing: Summing | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """`summing`: where /metrics has the router's part from, if not from this process alone.

        `telemetry`: what is sent by OTLP; whoever started it closes it.
        """
        self._config = config
        self._summing = summing or self._own_families
        self._fleets = [model.engine for model in models]
        self._metrics = RouterMetrics(telemetry)
        self._metrics.registry.register(FleetCollector(self._fleets))
        self._services = public_services(
            Models(models), self._metrics, allow_lora_updates=config.allow_lora_updates
        )
        self._admission = config.edge.admission(self._metrics.count_rejection, config.new_bucket)
        for fleet in self._fleets:
            fleet.on_routed = self._metrics.observe_routing
        self._health = health.aio.HealthServicer()
        self._draining = False
        self._drain_begun = asyncio.Event()
        self._socket: socket.socket | None = None
        self._http: HttpServer | None = None
        self.app: Starlette | None = None
        self._grpc: grpc.aio.Server | None = None
        self._grpc_port = config.grpc_port

    @property
    def ports(self) -> dict[str, int]:
        """Where it listens by the flags' names, with what was chosen for port 0."""
        http_port = self._config.port if self._socket is None else self._socket.getsockname()[1]
        return {"port": http_port, "grpc_port": self._grpc_port}

    @property
    def ready(self) -> bool:
        """Whether a request for any of the models would be served now."""
        return not self._draining and all(fleet.ready for fleet in self._fleets)

    def families(self) -> list[Metric]:
        """This process's metrics."""
        return list(self._metrics.registry.collect())

    async def _own_families(self) -> Iterable[Metric]:
        return self.families()

    async def start(self) -> None:
        """Listens on both ports. Raises OSError when one is taken."""
        config = self._config
        self._socket = _listen(config.host, config.port, shared=config.shares_ports)
        if self._config.edge.keyring is None and self._config.host not in _LOOPBACK:
            log.warning("whoever reaches %s may use this server: no --api-key", self._config.host)
        self._grpc = await self._start_grpc()
        self.app = build_app(
            self._services,
            settings=HttpSettings(
                body_cap=self._config.max_body_bytes, body_seconds=self._config.edge.body_timeout
            ),
            extra_routes=[
                *ops_routes(self, self._fleets, self._summing),
                *(config.page.routes() if config.page is not None else ()),
            ],
            cors=self._config.edge.cors,
            middleware=[
                RefuseLateRequests.middleware(lambda: self._draining),
                *self._config.edge.middleware(),
                AdmitRequest.middleware(self._admission),
            ],
            on_answer=self._metrics.count_answer,
        )
        tls = config.tls
        self._http = HttpServer(
            uvicorn.Config(
                self.app,
                loop="none",
                http=LimitedProtocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                timeout_graceful_shutdown=int(_LAST_SECONDS),
                ssl_context_factory=None if tls is None else lambda *_: tls.http_context(),
            ),
            drain_seconds=config.shutdown_timeout + _LAST_SECONDS,
        )

    async def close(self) -> None:
        """Gives the ports back, also when `run` was never reached."""
        if self._grpc is not None:
            await self._grpc.stop(0)
        if self._socket is not None:
            self._socket.close()

    async def run(self) -> None:
        """Serves until one of `ending_signals`, then drains; see `stop`."""
        if self._http is None or self._socket is None:
            raise RuntimeError("start() comes first")
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self.stop)
        watches = [
            asyncio.create_task(each) for each in (self._follow_health(), self._follow_keys())
        ]
        drain = asyncio.create_task(self._drain_grpc())
        try:
            await self._http.serve([self._socket])
        finally:
            self._drain_begun.set()
            await drain
            for watch in watches:
                watch.cancel()

    def stop(self) -> None:
        """Begins the drain: not ready, no new connections, and what runs may finish.

        Called again, or once the time to finish is over, it ends what runs with an error that
        clients see.
        """
        if self._http is None:
            return
        if self._draining:
            self._end_streams()
            return
        self._draining = True
        self._http.should_exit = True
        self._drain_begun.set()
        loop = asyncio.get_running_loop()
        loop.call_later(self._config.shutdown_timeout, self._end_streams)

    def _end_streams(self) -> None:
        for fleet in self._fleets:
            fleet.fail_all(shutting_down())

    async def _drain_grpc(self) -> None:
        """Refuses new calls and waits for those of the API; who watches health does not count."""
        if self._grpc is None:
            return
        await self._drain_begun.wait()
        longest = self._config.shutdown_timeout + _LAST_SECONDS
        stopped = asyncio.create_task(self._grpc.stop(longest))
        await self._metrics.idle.wait()
        await self._grpc.stop(_LAST_SECONDS)
        await stopped

    async def _start_grpc(self) -> grpc.aio.Server:
        keyring = self._config.edge.keyring
        names = [service.full_name for service in self._services]
        ping_milliseconds = int(self._config.ping_seconds * 1000)
        server = grpc.aio.server(
            interceptors=[
                CountCalls(self._metrics.registry, (*names, *_OPERATING_SERVICES)),
                *([KeyInterceptor(keyring)] if keyring is not None else ()),
                AdmitCall(self._admission, names),
            ],
            options=[
                ("grpc.max_receive_message_length", self._config.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.http2.min_ping_interval_without_data_ms", ping_milliseconds),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.so_reuseport", int(self._config.shares_ports)),
            ],
        )
        for service in self._services:
            service.add_to_server(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        channelz.add_channelz_servicer(server)
        reflection.enable_server_reflection(
            (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        address = f"{host}:{self._config.grpc_port}"
        try:
            if self._config.tls is None:
                self._grpc_port = server.add_insecure_port(address)
            else:
                credentials = self._config.tls.grpc_credentials()
                self._grpc_port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            why = why_not(address)
            raise OSError(f"cannot listen on {address} for gRPC: {why}") from error
        await server.start()
        return server

    async def _follow_keys(self) -> None:
        if self._config.edge.keyring is not None:
            await self._config.edge.keyring.follow()

    async def _follow_health(self) -> None:
        shown: bool | None = None
        while True:
            if shown != self.ready:
                shown = self.ready
                status = health_pb2.HealthCheckResponse
                value = status.SERVING if shown else status.NOT_SERVING
                for name in ("", *(service.full_name for service in self._services)):
                    await self._health.set(name, value)
            await asyncio.sleep(_POLL_SECONDS)
