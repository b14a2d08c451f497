# Generated from octavo/inference/v1/embeddings.proto by router_svc/codegen; do not edit.
"""JSON bodies to the request messages of octavo/inference/v1/embeddings.proto."""

from collections.abc import Mapping
from typing import Final

from octavo.inference.v1 import embeddings_pb2 as pb
from octavo.inference.v1 import inference_pb2
from router_svc.gen import inference_decode
from router_svc.http import checks
from router_svc.http import decoding as read
from router_svc.http.checks import join

_ENCODING_FORMAT: Final[Mapping[str, pb.EncodingFormat.ValueType]] = {
    "float": pb.ENCODING_FORMAT_FLOAT,
    "base64": pb.ENCODING_FORMAT_BASE64,
}
_CREATE_EMBEDDINGS_REQUEST_FIELDS: Final = frozenset(
    {
        "model",
        "input",
        "encoding_format",
        "dimensions",
        "user",
        "truncate_prompt_tokens",
        "add_special_tokens",
        "priority",
    }
)


def decode_create_embeddings_request(value: object, path: str) -> pb.CreateEmbeddingsRequest:
    """Texts to embed."""
    fields = read.fields(value, path, _CREATE_EMBEDDINGS_REQUEST_FIELDS, ("input",))
    message = pb.CreateEmbeddingsRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("input")) is not None:
        message.input.CopyFrom(inference_decode.decode_prompt(item, join(path, "input")))
    if (item := fields.get("encoding_format")) is not None:
        message.encoding_format = read.choice(item, path, "encoding_format", _ENCODING_FORMAT)
    if (item := fields.get("dimensions")) is not None:
        message.dimensions = read.integer(item, path, "dimensions", 1, 2147483647)
    if (item := fields.get("user")) is not None:
        message.user = read.string(item, path, "user")
    if (item := fields.get("truncate_prompt_tokens")) is not None:
        message.truncate_prompt_tokens = read.integer(
            item, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if (item := fields.get("add_special_tokens")) is not None:
        message.add_special_tokens = read.boolean(item, path, "add_special_tokens")
    if (item := fields.get("priority")) is not None:
        message.priority = read.integer(item, path, "priority", -1000000, 1000000)
    return message


_RERANK_REQUEST_FIELDS: Final = frozenset(
    {
        "model",
        "query",
        "documents",
        "top_n",
        "return_documents",
        "user",
        "truncate_prompt_tokens",
        "priority",
    }
)


def decode_rerank_request(value: object, path: str) -> pb.RerankRequest:
    """A query, and documents to order by how well they answer it."""
    fields = read.fields(value, path, _RERANK_REQUEST_FIELDS, ("query", "documents"))
    message = pb.RerankRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("query")) is not None:
        message.query = read.string(item, path, "query")
    if (item := fields.get("documents")) is not None:
        at = join(path, "documents")
        for index, element in enumerate(read.array(item, path, "documents", most=2048)):
            message.documents.append(decode_rerank_document(element, f"{at}[{index}]"))
    if (item := fields.get("top_n")) is not None:
        message.top_n = read.integer(item, path, "top_n", 1, 2147483647)
    if (item := fields.get("return_documents")) is not None:
        message.return_documents = read.boolean(item, path, "return_documents")
    if (item := fields.get("user")) is not None:
        message.user = read.string(item, path, "user")
    if (item := fields.get("truncate_prompt_tokens")) is not None:
        message.truncate_prompt_tokens = read.integer(
            item, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if (item := fields.get("priority")) is not None:
        message.priority = read.integer(item, path, "priority", -1000000, 1000000)
    return message


def decode_rerank_document(value: object, path: str) -> pb.RerankDocument:
    """A document: a text, or an object with one."""
    message = pb.RerankDocument()
    if type(value) is dict:
        message.object.CopyFrom(decode_document_object(value, path))
    elif type(value) is str:
        message.text = value
    else:
        raise read.wrong_type(path, "a string or an object", value)
    return message


_DOCUMENT_OBJECT_FIELDS: Final = frozenset({"text"})


def decode_document_object(value: object, path: str) -> pb.DocumentObject:
    """An object with a text."""
    fields = read.fields(value, path, _DOCUMENT_OBJECT_FIELDS, ("text",))
    message = pb.DocumentObject()
    if (item := fields.get("text")) is not None:
        message.text = read.string(item, path, "text")
    return message


_SCORE_REQUEST_FIELDS: Final = frozenset(
    {"model", "text_1", "text_2", "user", "truncate_prompt_tokens", "priority"}
)


def decode_score_request(value: object, path: str) -> pb.ScoreRequest:
    """Pairs of texts: each text of text_2 with the one text of text_1, or with its counterpart."""
    fields = read.fields(value, path, _SCORE_REQUEST_FIELDS, ("text_1", "text_2"))
    message = pb.ScoreRequest()
    if (item := fields.get("model")) is not None:
        message.model = read.string(item, path, "model")
    if (item := fields.get("text_1")) is not None:
        message.text_1.extend(read.strings(item, path, "text_1", most=2048, one_or_many=True))
    if (item := fields.get("text_2")) is not None:
        message.text_2.extend(read.strings(item, path, "text_2", most=2048, one_or_many=True))
    if (item := fields.get("user")) is not None:
        message.user = read.string(item, path, "user")
    if (item := fields.get("truncate_prompt_tokens")) is not None:
        message.truncate_prompt_tokens = read.integer(
            item, path, "truncate_prompt_tokens", -1, 2147483647
        )
    if (item := fields.get("priority")) is not None:
        message.priority = read.integer(item, path, "priority", -1000000, 1000000)
    return message
