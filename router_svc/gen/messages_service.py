# Generated from octavo/inference/v1/messages.proto by router_svc/codegen; do not edit.
"""octavo.inference.v1.Messages as the server registers it."""

from functools import partial

from octavo.inference.v1 import messages_pb2_grpc as pb_grpc
from router_svc.gen.messages_grpc import MessagesGrpcServicer
from router_svc.gen.messages_handler import MessagesHandler
from router_svc.gen.messages_http import routes
from router_svc.http.service import Service


def messages_service(handler: MessagesHandler) -> Service:
    """HTTP routes and gRPC servicer over one handler."""
    return Service(
        "octavo.inference.v1.Messages",
        partial(routes, handler),
        partial(pb_grpc.add_MessagesServicer_to_server, MessagesGrpcServicer(handler)),
    )
