# Generated from octavo/inference/v1/inference.proto by router_svc/codegen; do not edit.
"""octavo.inference.v1.Inference as the server registers it."""

from functools import partial

from octavo.inference.v1 import inference_pb2_grpc as pb_grpc
from router_svc.gen.inference_grpc import InferenceGrpcServicer
from router_svc.gen.inference_handler import InferenceHandler
from router_svc.gen.inference_http import routes
from router_svc.http.service import Service


def inference_service(handler: InferenceHandler) -> Service:
    """HTTP routes and gRPC servicer over one handler."""
    return Service(
        "octavo.inference.v1.Inference",
        partial(routes, handler),
        partial(pb_grpc.add_InferenceServicer_to_server, InferenceGrpcServicer(handler)),
    )
