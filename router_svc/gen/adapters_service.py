# Generated from octavo/inference/v1/adapters.proto by router_svc/codegen; do not edit.
"""octavo.inference.v1.Adapters as the server registers it."""

from functools import partial

from octavo.inference.v1 import adapters_pb2_grpc as pb_grpc
from router_svc.gen.adapters_grpc import AdaptersGrpcServicer
from router_svc.gen.adapters_handler import AdaptersHandler
from router_svc.gen.adapters_http import routes
from router_svc.http.service import Service


def adapters_service(handler: AdaptersHandler) -> Service:
    """HTTP routes and gRPC servicer over one handler."""
    return Service(
        "octavo.inference.v1.Adapters",
        partial(routes, handler),
        partial(pb_grpc.add_AdaptersServicer_to_server, AdaptersGrpcServicer(handler)),
    )
