# Generated from octavo/inference/v1/embeddings.proto by router_svc/codegen; do not edit.
"""What an implementation of octavo.inference.v1.Embeddings offers."""

from collections.abc import AsyncIterator
from typing import Protocol

from octavo.inference.v1 import embeddings_pb2 as pb
from router_svc.call_context import CallContext


class EmbeddingsHandler(Protocol):
    """Embeddings and relevance for clients, in any language.

    Requests arrive validated. Failures are raised as ApiError; cancelling the call
    or closing the iterator means that the client is gone.
    """

    async def create_embeddings(
        self, request: pb.CreateEmbeddingsRequest, context: CallContext
    ) -> pb.CreateEmbeddingsResponse:
        """Embeds texts."""
        ...

    async def rerank(self, request: pb.RerankRequest, context: CallContext) -> pb.RerankResponse:
        """Orders documents by how well they answer a query."""
        ...

    async def score(self, request: pb.ScoreRequest, context: CallContext) -> pb.ScoreResponse:
        """Says how well pairs of texts fit."""
        ...
