# Generated from octavo/inference/v1/embeddings.proto by router_svc/codegen; do not edit.
"""Limits of the request messages of octavo/inference/v1/embeddings.proto, whichever way they came."""

from octavo.inference.v1 import embeddings_pb2 as pb
from router_svc.gen import inference_validate
from router_svc.http import checks
from router_svc.http.checks import join


def validate_create_embeddings_request(message: pb.CreateEmbeddingsRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of CreateEmbeddingsRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not message.HasField("input"):
        raise checks.missing(path, "input")
    inference_validate.validate_prompt(message.input, join(path, "input"))
    if message.HasField("encoding_format") and message.encoding_format not in (0, 1, 2):
        raise checks.unknown_enum(
            message.encoding_format, join(path, "encoding_format"), ("float", "base64")
        )
    if message.HasField("dimensions") and not 1 <= message.dimensions <= 2147483647:
        raise checks.out_of_range(message.dimensions, path, "dimensions", 1, 2147483647)
    if message.HasField("user") and len(message.user) > 512:
        raise checks.too_long(len(message.user), join(path, "user"), 512)
    if (
        message.HasField("truncate_prompt_tokens")
        and not -1 <= message.truncate_prompt_tokens <= 2147483647
    ):
        raise checks.out_of_range(
            message.truncate_prompt_tokens, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if message.HasField("priority") and not -1000000 <= message.priority <= 1000000:
        raise checks.out_of_range(message.priority, path, "priority", -1000000, 1000000)


def validate_rerank_request(message: pb.RerankRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of RerankRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not 1 <= len(message.documents) <= 2048:
        raise checks.wrong_count(len(message.documents), join(path, "documents"), 1, 2048)
    at = join(path, "documents")
    for index, documents_item in enumerate(message.documents):
        validate_rerank_document(documents_item, f"{at}[{index}]")
    if message.HasField("top_n") and not 1 <= message.top_n <= 2147483647:
        raise checks.out_of_range(message.top_n, path, "top_n", 1, 2147483647)
    if message.HasField("user") and len(message.user) > 512:
        raise checks.too_long(len(message.user), join(path, "user"), 512)
    if (
        message.HasField("truncate_prompt_tokens")
        and not -1 <= message.truncate_prompt_tokens <= 2147483647
    ):
        raise checks.out_of_range(
            message.truncate_prompt_tokens, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if message.HasField("priority") and not -1000000 <= message.priority <= 1000000:
        raise checks.out_of_range(message.priority, path, "priority", -1000000, 1000000)


def validate_rerank_document(message: pb.RerankDocument, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of RerankDocument is broken."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise checks.unset(path)
    if kind == "object":
        validate_document_object(message.object, path)


def validate_document_object(message: pb.DocumentObject, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of DocumentObject is broken."""


def validate_score_request(message: pb.ScoreRequest, path: str = "") -> None:
    """Raises ApiError, naming the field, if a limit of ScoreRequest is broken."""
    if message.HasField("model") and len(message.model) > 512:
        raise checks.too_long(len(message.model), join(path, "model"), 512)
    if not 1 <= len(message.text_1) <= 2048:
        raise checks.wrong_count(len(message.text_1), join(path, "text_1"), 1, 2048)
    if not 1 <= len(message.text_2) <= 2048:
        raise checks.wrong_count(len(message.text_2), join(path, "text_2"), 1, 2048)
    if message.HasField("user") and len(message.user) > 512:
        raise checks.too_long(len(message.user), join(path, "user"), 512)
    if (
        message.HasField("truncate_prompt_tokens")
        and not -1 <= message.truncate_prompt_tokens <= 2147483647
    ):
        raise checks.out_of_range(
            message.truncate_prompt_tokens, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if message.HasField("priority") and not -1000000 <= message.priority <= 1000000:
        raise checks.out_of_range(message.priority, path, "priority", -1000000, 1000000)
