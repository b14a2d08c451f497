"""The public services of a router: each is one line here, and serves HTTP and gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.api.embeddings_handler import Embeddings
from router_svc.api.handler import Inference
from router_svc.api.messages.handler import Messages
from router_svc.api.responses.handler import Responses
from router_svc.gen.embeddings_service import embeddings_service
from router_svc.gen.inference_service import inference_service
from router_svc.gen.messages_service import messages_service
from router_svc.gen.responses_service import responses_service

if TYPE_CHECKING:
    from router_svc.http.service import Service
    from router_svc.metrics import RouterMetrics
    from router_svc.served_model import ServedModel


def public_services(model: ServedModel, metrics: RouterMetrics) -> list[Service]:
    """Every service over the served model; their calls are counted."""
    return [
        inference_service(Inference(model, metrics)),
        embeddings_service(Embeddings(model, metrics)),
        messages_service(Messages(model, metrics)),
        responses_service(Responses(model, metrics)),
    ]
