"""Rerank and score: how well texts fit one another.

A cross-encoder reads both texts of a pair at once, and its classifier's output is the score. An
embedding model reads each text alone, and the score is the cosine of the two embeddings.
"""

from __future__ import annotations

import math
import time
from functools import partial
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from octavo.inference.v1 import embeddings_pb2 as pb

from router_svc.api import params
from router_svc.api.encoding import Encoded, Source, encode
from router_svc.engines.encoder_types import EncoderTask
from router_svc.errors import invalid
from router_svc.text.encoder_inputs import pair_input, text_input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router_svc.call_context import CallContext
    from router_svc.served_model import ServedModel


class _Text(NamedTuple):
    """A text and the field that it came in."""

    param: str
    text: str


async def rerank(
    request: pb.RerankRequest, model: ServedModel, context: CallContext
) -> pb.RerankResponse:
    """The best documents, the best first; equal ones keep their order."""
    texts = [
        document.text if document.WhichOneof("kind") == "text" else document.object.text
        for document in request.documents
    ]
    documents = [_Text(f"documents[{i}]", text) for i, text in enumerate(texts)]
    query = _Text("query", request.query)
    scores, encoded = await _scores(request, model, context, [query], documents)
    best = sorted(range(len(texts)), key=lambda i: -scores[i])
    if request.HasField("top_n"):
        best = best[: request.top_n]
    with_documents = request.return_documents or not request.HasField("return_documents")
    results = [
        pb.RerankResult(
            index=i,
            relevance_score=scores[i],
            document=pb.DocumentObject(text=texts[i]) if with_documents else None,
        )
        for i in best
    ]
    return pb.RerankResponse(
        id=f"rerank-{context.request_id}", model=model.name, results=results, usage=encoded.usage
    )


async def score(
    request: pb.ScoreRequest, model: ServedModel, context: CallContext
) -> pb.ScoreResponse:
    """A score for each pair: the one first text with every second one, or the n-th of both."""
    first, second = len(request.text_1), len(request.text_2)
    if first not in (1, second):
        raise invalid(
            "text_1", f"needs one text or as many as text_2, which has {second}, not {first}"
        )
    created = int(time.time())
    scores, encoded = await _scores(
        request,
        model,
        context,
        [_Text(f"text_1[{i}]", text) for i, text in enumerate(request.text_1)],
        [_Text(f"text_2[{i}]", text) for i, text in enumerate(request.text_2)],
    )
    return pb.ScoreResponse(
        id=f"score-{context.request_id}",
        created=created,
        model=model.name,
        data=[pb.ScoreResult(index=i, score=value) for i, value in enumerate(scores)],
        usage=encoded.usage,
    )


async def _scores(
    request: pb.RerankRequest | pb.ScoreRequest,
    model: ServedModel,
    context: CallContext,
    first: Sequence[_Text],
    second: Sequence[_Text],
) -> tuple[list[float], Encoded]:
    """A score for each second text, with the one first text or its counterpart."""
    info, tokenizer = model.info, model.tokenizer
    kept = params.tokens_kept(request, info)
    if info.num_labels:
        if info.num_labels > 1:
            raise invalid(
                "model", f"the model {model.name} tells {info.num_labels} classes apart: no score"
            )
        pair = tokenizer.pair
        if pair is None:
            raise invalid("model", f"the tokeniser of {model.name} joins no pairs of texts")
        firsts = first if len(first) == len(second) else [first[0]] * len(second)
        sources = [
            Source(b.param, partial(pair_input, tokenizer, pair, a.text, b.text, kept=kept))
            for a, b in zip(firsts, second, strict=True)
        ]
        encoded = await encode(request, model, context, EncoderTask.SCORE, sources)
        return [vector[0] for vector in encoded.vectors], encoded
    if not info.embedding_size:
        raise invalid("model", f"the model {model.name} makes neither embeddings nor scores")
    sources = [
        Source(param, partial(text_input, tokenizer, text, kept=kept))
        for param, text in (*first, *second)
    ]
    encoded = await encode(request, model, context, EncoderTask.EMBED, sources)
    scores = await model.run(lambda: _cosines(encoded.vectors, len(first)))
    return scores, encoded


def _cosines(vectors: Sequence[Sequence[float]], num_first: int) -> list[float]:
    """Of each vector after the first ones with the only or the corresponding one of those."""
    lengths = [math.hypot(*vector) for vector in vectors]
    cosines = []
    for i in range(num_first, len(vectors)):
        j = i - num_first if num_first > 1 else 0
        product = lengths[i] * lengths[j]
        dot = math.fsum(map(mul, vectors[i], vectors[j]))
        cosines.append(dot / product if product else 0.0)
    return cosines
