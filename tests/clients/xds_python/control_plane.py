"""A small xDS control plane: one listener, one cluster, and endpoints that change.

    LDS octavo ──► CDS octavo ──► EDS octavo: host:port, host:port, …

One stream carries all kinds of resources; a client names what it wants, and answers each response
with an ACK, or a NACK that says why: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

import grpc
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.address_pb2 import Address, SocketAddress
from envoy.config.core.v3.base_pb2 import Locality
from envoy.config.core.v3.config_source_pb2 import AggregatedConfigSource, ConfigSource
from envoy.config.endpoint.v3.endpoint_components_pb2 import (
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.api_listener_pb2 import ApiListener
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import (
    Route,
    RouteAction,
    RouteMatch,
    VirtualHost,
)
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (  # noqa: E501 -- its name
    HttpConnectionManager,
    HttpFilter,
)
from envoy.service.discovery.v3.ads_pb2_grpc import (
    AggregatedDiscoveryServiceServicer,
    add_AggregatedDiscoveryServiceServicer_to_server,
)
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import UInt32Value

NAME = "octavo"  # of listener, cluster and endpoints alike


class ControlPlane(AggregatedDiscoveryServiceServicer):
    """Tells every client that asks where the routers are, and again when that changes."""

    def __init__(self) -> None:
        self._endpoints: tuple[str, ...] = ()
        self._versions = itertools.count(1)
        self._streams: set[asyncio.Queue[DiscoveryResponse]] = set()

    async def start(self) -> str:
        """Serves on a port of its own; returns its address."""
        self._server = grpc.aio.server()
        add_AggregatedDiscoveryServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    def set_endpoints(self, targets: Sequence[str]) -> None:
        """From now on these, as host:port, are the routers."""
        self._endpoints = tuple(targets)
        for stream in self._streams:
            stream.put_nowait(self._response(_type_url(ClusterLoadAssignment())))

    async def StreamAggregatedResources(  # noqa: N802 -- gRPC's name
        self, requests: AsyncIterator[DiscoveryRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[DiscoveryResponse]:
        """Answers one client."""
        responses: asyncio.Queue[DiscoveryResponse] = asyncio.Queue()
        reader = asyncio.create_task(self._read(requests, responses))
        self._streams.add(responses)
        try:
            while True:
                yield await responses.get()
        finally:
            self._streams.discard(responses)
            reader.cancel()

    async def _read(
        self,
        requests: AsyncIterator[DiscoveryRequest],
        responses: asyncio.Queue[DiscoveryResponse],
    ) -> None:
        async for request in requests:
            if request.HasField("error_detail"):
                raise RuntimeError(f"the client refuses {request.type_url}: {request.error_detail}")
            if not request.response_nonce:  # otherwise it is an ACK
                responses.put_nowait(self._response(request.type_url))

    def _response(self, type_url: str) -> DiscoveryResponse:
        resources = (_listener(), _cluster(), _assignment(self._endpoints))
        version = str(next(self._versions))
        return DiscoveryResponse(
            version_info=version,
            nonce=version,
            type_url=type_url,
            resources=[_any(each) for each in resources if _type_url(each) == type_url],
        )


def _type_url(message: Message) -> str:
    return f"type.googleapis.com/{message.DESCRIPTOR.full_name}"


def _any(message: Message) -> Any:
    packed = Any()
    packed.Pack(message)
    return packed


def _listener() -> Listener:
    route = Route(match=RouteMatch(prefix=""), route=RouteAction(cluster=NAME))
    manager = HttpConnectionManager(
        route_config=RouteConfiguration(
            virtual_hosts=[VirtualHost(name=NAME, domains=["*"], routes=[route])]
        ),
        http_filters=[HttpFilter(name="router", typed_config=_any(Router()))],
    )
    return Listener(name=NAME, api_listener=ApiListener(api_listener=_any(manager)))


def _cluster() -> Cluster:
    here = ConfigSource(ads=AggregatedConfigSource())
    return Cluster(
        name=NAME,
        type=Cluster.EDS,
        eds_cluster_config=Cluster.EdsClusterConfig(eds_config=here),
        lb_policy=Cluster.ROUND_ROBIN,
    )


def _assignment(targets: Sequence[str]) -> ClusterLoadAssignment:
    endpoints = []
    for target in targets:
        host, port = target.rsplit(":", 1)
        address = Address(socket_address=SocketAddress(address=host, port_value=int(port)))
        endpoints.append(LbEndpoint(endpoint=Endpoint(address=address)))
    locality = LocalityLbEndpoints(
        locality=Locality(region="here"),
        load_balancing_weight=UInt32Value(value=1),
        lb_endpoints=endpoints,
    )
    return ClusterLoadAssignment(cluster_name=NAME, endpoints=[locality])
