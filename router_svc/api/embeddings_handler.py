"""Implements the public service of embeddings, whichever way a call came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router_svc.api import embeddings, ranking

if TYPE_CHECKING:
    from octavo.inference.v1 import embeddings_pb2 as pb

    from router_svc.call_context import CallContext
    from router_svc.metrics import RouterMetrics
    from router_svc.models import Models


class Embeddings:
    """The generated `EmbeddingsHandler` over the served models. Every call is counted."""

    def __init__(self, models: Models, metrics: RouterMetrics) -> None:
        self._models = models
        self._metrics = metrics

    async def create_embeddings(
        self, request: pb.CreateEmbeddingsRequest, context: CallContext
    ) -> pb.CreateEmbeddingsResponse:
        """See octavo.inference.v1.Embeddings."""
        with self._metrics.generation(
            "CreateEmbeddings", "embeddings", request.model, context
        ) as context:
            return await embeddings.create(request, self._models.base_of(request), context)

    async def rerank(self, request: pb.RerankRequest, context: CallContext) -> pb.RerankResponse:
        """See octavo.inference.v1.Embeddings."""
        with self._metrics.generation("Rerank", "rerank", request.model, context) as context:
            return await ranking.rerank(request, self._models.base_of(request), context)

    async def score(self, request: pb.ScoreRequest, context: CallContext) -> pb.ScoreResponse:
        """See octavo.inference.v1.Embeddings."""
        with self._metrics.generation("Score", "score", request.model, context) as context:
            return await ranking.score(request, self._models.base_of(request), context)
