# Generated from octavo/inference/v1/embeddings.proto by router_svc/codegen; do not edit.
"""gRPC servicer of octavo.inference.v1.Embeddings."""

from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from octavo.inference.v1 import embeddings_pb2 as pb
from octavo.inference.v1 import embeddings_pb2_grpc as pb_grpc
from router_svc.gen import embeddings_validate as validate
from router_svc.gen.embeddings_handler import EmbeddingsHandler
from router_svc.http import rpc


class EmbeddingsGrpcServicer(pb_grpc.EmbeddingsServicer):
    """Answers gRPC calls with EmbeddingsHandler."""

    def __init__(self, handler: EmbeddingsHandler) -> None:
        self._handler = handler

    async def CreateEmbeddings(
        self, request: pb.CreateEmbeddingsRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.CreateEmbeddingsResponse:
        """Embeds texts."""
        return await rpc.reply(
            request,
            context,
            validate.validate_create_embeddings_request,
            self._handler.create_embeddings,
        )

    async def Rerank(
        self, request: pb.RerankRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.RerankResponse:
        """Orders documents by how well they answer a query."""
        return await rpc.reply(
            request, context, validate.validate_rerank_request, self._handler.rerank
        )

    async def Score(
        self, request: pb.ScoreRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.ScoreResponse:
        """Says how well pairs of texts fit."""
        return await rpc.reply(
            request, context, validate.validate_score_request, self._handler.score
        )
