"""Embeddings: texts or token ids become vectors, as numbers or in base64."""

from __future__ import annotations

import base64
import math
import struct
from functools import partial
from typing import TYPE_CHECKING

from octavo.inference.v1 import embeddings_pb2 as pb

from router_svc.api import params
from router_svc.api.encoding import Source, encode
from router_svc.engines.encoder_types import EncoderInput, EncoderTask
from router_svc.errors import invalid
from router_svc.text.encoder_inputs import text_input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.inference.v1 import inference_pb2

    from router_svc.call_context import CallContext
    from router_svc.served_model import ServedModel


async def create(
    request: pb.CreateEmbeddingsRequest, model: ServedModel, context: CallContext
) -> pb.CreateEmbeddingsResponse:
    """An embedding of each input."""
    size = model.info.embedding_size
    if not size:
        raise invalid("model", f"the model {model.name} makes no embeddings")
    if request.dimensions > size:
        raise invalid(
            "dimensions",
            f"must be at most {size}, the size of an embedding, not {request.dimensions}",
        )
    sources = _sources(request, model, params.tokens_kept(request, model.info))
    encoded = await encode(request, model, context, EncoderTask.EMBED, sources)
    dimensions = request.dimensions if request.HasField("dimensions") else None
    as_base64 = request.encoding_format == pb.ENCODING_FORMAT_BASE64

    def data() -> list[pb.Embedding]:
        return [
            pb.Embedding(index=index, embedding=_vector(vector, dimensions, as_base64=as_base64))
            for index, vector in enumerate(encoded.vectors)
        ]

    return pb.CreateEmbeddingsResponse(
        data=await model.run(data), model=model.name, usage=encoded.usage
    )


def _sources(
    request: pb.CreateEmbeddingsRequest, model: ServedModel, kept: int | None
) -> list[Source]:
    special = request.add_special_tokens or not request.HasField("add_special_tokens")

    def of_text(param: str, text: str) -> Source:
        make = partial(text_input, model.tokenizer, text, kept=kept, add_special_tokens=special)
        return Source(param, make)

    def of_ids(param: str, ids: inference_pb2.TokenIds) -> Source:
        def make() -> EncoderInput:
            model.check_token_ids(ids.items, param)
            return EncoderInput(ids.items[:kept])

        return Source(param, make)

    given = request.input
    match given.WhichOneof("kind"):
        case "text":
            return [of_text("input", given.text)]
        case "texts":
            return [of_text(f"input[{i}]", text) for i, text in enumerate(given.texts.items)]
        case "token_ids":
            return [of_ids("input", given.token_ids)]
        case _:
            lists = given.token_ids_list.items
            return [of_ids(f"input[{i}]", ids) for i, ids in enumerate(lists)]


def _vector(
    values: Sequence[float], dimensions: int | None, *, as_base64: bool
) -> pb.EmbeddingVector:
    if dimensions is not None:
        values = _shortened(values, dimensions)
    if as_base64:
        packed = struct.pack(f"<{len(values)}f", *values)
        return pb.EmbeddingVector(base64=base64.b64encode(packed).decode("ascii"))
    return pb.EmbeddingVector(floats=pb.FloatList(items=values))


def _shortened(values: Sequence[float], dimensions: int) -> list[float]:
    """The first numbers of a vector, at length 1 (Matryoshka embeddings)."""
    prefix = list(values[:dimensions])
    length = math.hypot(*prefix)
    return [value / length for value in prefix] if length else prefix
