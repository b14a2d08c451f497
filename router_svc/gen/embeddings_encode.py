# Generated from octavo/inference/v1/embeddings.proto by router_svc/codegen; do not edit.
"""Answer messages of octavo/inference/v1/embeddings.proto to JSON values."""

from collections.abc import Mapping
from typing import Any, Final

from octavo.inference.v1 import embeddings_pb2 as pb
from router_svc.http import encoding as write


def encode_create_embeddings_response(message: pb.CreateEmbeddingsResponse) -> dict[str, Any]:
    """The embeddings of texts."""
    body: dict[str, Any] = {
        "object": "list",
        "data": [encode_embedding(element) for element in message.data],
        "model": message.model,
    }
    if message.HasField("usage"):
        body["usage"] = encode_embedding_usage(message.usage)
    return body


def encode_embedding(message: pb.Embedding) -> dict[str, Any]:
    """One input's embedding."""
    body: dict[str, Any] = {"object": "embedding", "index": message.index}
    if message.HasField("embedding"):
        body["embedding"] = encode_embedding_vector(message.embedding)
    return body


def encode_embedding_vector(message: pb.EmbeddingVector) -> Any:
    """A vector."""
    kind = message.WhichOneof("kind")
    if kind == "floats":
        return encode_float_list(message.floats)
    if kind == "base64":
        return message.base64
    return None


def encode_float_list(message: pb.FloatList) -> Any:
    """Numbers."""
    return write.numbers(message.items, "items")


def encode_embedding_usage(message: pb.EmbeddingUsage) -> dict[str, Any]:
    """Tokens used by an encoder's request."""
    return {"prompt_tokens": message.prompt_tokens, "total_tokens": message.total_tokens}


def encode_document_object(message: pb.DocumentObject) -> dict[str, Any]:
    """An object with a text."""
    return {"text": message.text}


def encode_rerank_response(message: pb.RerankResponse) -> dict[str, Any]:
    """Documents, the best first."""
    body: dict[str, Any] = {
        "id": message.id,
        "model": message.model,
        "results": [encode_rerank_result(element) for element in message.results],
    }
    if message.HasField("usage"):
        body["usage"] = encode_embedding_usage(message.usage)
    return body


def encode_rerank_result(message: pb.RerankResult) -> dict[str, Any]:
    """One document's place."""
    body: dict[str, Any] = {
        "index": message.index,
        "relevance_score": write.number(message.relevance_score, "relevance_score"),
    }
    if message.HasField("document"):
        body["document"] = encode_document_object(message.document)
    return body


def encode_score_response(message: pb.ScoreResponse) -> dict[str, Any]:
    """How well pairs fit."""
    body: dict[str, Any] = {
        "id": message.id,
        "object": "list",
        "created": message.created,
        "model": message.model,
        "data": [encode_score_result(element) for element in message.data],
    }
    if message.HasField("usage"):
        body["usage"] = encode_embedding_usage(message.usage)
    return body


def encode_score_result(message: pb.ScoreResult) -> dict[str, Any]:
    """How well one pair fits."""
    return {
        "index": message.index,
        "object": "score",
        "score": write.number(message.score, "score"),
    }
