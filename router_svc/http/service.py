"""A public service as the server registers it, over HTTP and gRPC alike."""

from collections.abc import Callable
from dataclasses import dataclass

from grpc import aio
from starlette.routing import Route

from router_svc.http.exchange import HttpSettings


@dataclass(frozen=True, slots=True)
class Service:
    """One service of the public protos over its handler; the generated `<name>_service` makes it.

    `full_name` is what reflection and the health service show, `routes` the HTTP routes, and
    `add_to_server` adds the servicer to a gRPC server.
    """

    full_name: str
    routes: Callable[[HttpSettings], list[Route]]
    add_to_server: Callable[[aio.Server], None]
