# Generated from octavo/inference/v1/responses.proto by router_svc/codegen; do not edit.
"""octavo.inference.v1.Responses as the server registers it."""

from functools import partial

from octavo.inference.v1 import responses_pb2_grpc as pb_grpc
from router_svc.gen.responses_grpc import ResponsesGrpcServicer
from router_svc.gen.responses_handler import ResponsesHandler
from router_svc.gen.responses_http import routes
from router_svc.http.service import Service


def responses_service(handler: ResponsesHandler) -> Service:
    """HTTP routes and gRPC servicer over one handler."""
    return Service(
        "octavo.inference.v1.Responses",
        partial(routes, handler),
        partial(pb_grpc.add_ResponsesServicer_to_server, ResponsesGrpcServicer(handler)),
    )
