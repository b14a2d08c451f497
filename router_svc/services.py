"""The public services of a router: each is one line here, and serves HTTP and gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.api.adapters_handler import Adapters
from router_svc.api.embeddings_handler import Embeddings
from router_svc.api.handler import Inference
from router_svc.api.messages.handler import Messages
from router_svc.api.responses.handler import Responses
from router_svc.gen.adapters_service import adapters_service
from router_svc.gen.embeddings_service import embeddings_service
from router_svc.gen.inference_service import inference_service
from router_svc.gen.messages_service import messages_service
from router_svc.gen.responses_service import responses_service

if TYPE_CHECKING:
    from router_svc.http.service import Service
    from router_svc.metrics import RouterMetrics
    from router_svc.models import Models


def public_services(
    models: Models, metrics: RouterMetrics, *, allow_lora_updates: bool = False
) -> list[Service]:
    """Every service over the served models; their calls are counted."""
    return [
        inference_service(Inference(models, metrics)),
        embeddings_service(Embeddings(models, metrics)),
        messages_service(Messages(models, metrics)),
        responses_service(Responses(models, metrics)),
        adapters_service(Adapters(models, metrics, allowed=allow_lora_updates)),
    ]
