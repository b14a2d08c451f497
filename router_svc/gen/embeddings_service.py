# Generated from octavo/inference/v1/embeddings.proto by router_svc/codegen; do not edit.
"""octavo.inference.v1.Embeddings as the server registers it."""

from functools import partial

from octavo.inference.v1 import embeddings_pb2_grpc as pb_grpc
from router_svc.gen.embeddings_grpc import EmbeddingsGrpcServicer
from router_svc.gen.embeddings_handler import EmbeddingsHandler
from router_svc.gen.embeddings_http import routes
from router_svc.http.service import Service


def embeddings_service(handler: EmbeddingsHandler) -> Service:
    """HTTP routes and gRPC servicer over one handler."""
    return Service(
        "octavo.inference.v1.Embeddings",
        partial(routes, handler),
        partial(pb_grpc.add_EmbeddingsServicer_to_server, EmbeddingsGrpcServicer(handler)),
    )
