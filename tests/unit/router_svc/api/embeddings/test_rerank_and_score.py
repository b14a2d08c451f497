"""Rerank and score, by the cosine of embeddings and by a cross-encoder's classifier."""

from __future__ import annotations

import math

import pytest
from octavo.inference.v1 import embeddings_pb2 as pb

from router_svc.api.ranking import rerank, score
from router_svc.call_context import CallContext
from router_svc.errors import ApiError
from tests.support.word_pieces import CLS, ID, SEP

CONTEXT = CallContext("r")
CROSS = {"embedding_size": 0, "num_labels": 1}
DOCUMENTS = ["the dog", "red cat", "cat", "blue"]


def ranking(**fields: object) -> pb.RerankRequest:
    documents = [pb.RerankDocument(text=text) for text in DOCUMENTS]
    return pb.RerankRequest(**({"query": "cat", "documents": documents} | fields))  # type: ignore[arg-type]


def scoring(first: list[str], second: list[str], **fields: object) -> pb.ScoreRequest:
    return pb.ScoreRequest(text_1=first, text_2=second, **fields)  # type: ignore[arg-type]


async def test_documents_come_best_first_and_equal_ones_in_their_order(connect) -> None:
    model, engine = await connect()

    answer = await rerank(ranking(), model, CONTEXT)

    assert [result.index for result in answer.results] == [2, 1, 0, 3]
    scores = [result.relevance_score for result in answer.results]
    assert scores == pytest.approx([1, 1 / math.sqrt(2), 0, 0])
    assert [result.document.text for result in answer.results][:2] == ["cat", "red cat"]
    assert answer.id == "rerank-r"
    assert answer.usage.prompt_tokens == 3 + 4 + 4 + 3 + 3
    assert len(engine.calls[0].inputs) == 5  # the query once


async def test_only_the_best_are_returned_and_without_text_if_asked(connect) -> None:
    model, _ = await connect()

    answer = await rerank(ranking(top_n=2, return_documents=False), model, CONTEXT)

    assert [result.index for result in answer.results] == [2, 1]
    assert not any(result.HasField("document") for result in answer.results)


async def test_a_document_may_be_an_object_with_a_text(connect) -> None:
    model, _ = await connect()
    documents = [pb.RerankDocument(object=pb.DocumentObject(text="cat"))]

    (result,) = (await rerank(ranking(documents=documents), model, CONTEXT)).results

    assert (result.relevance_score, result.document.text) == (pytest.approx(1), "cat")


async def test_a_cross_encoder_reads_query_and_document_together(connect) -> None:
    model, engine = await connect(**CROSS)

    answer = await rerank(ranking(query="red cat"), model, CONTEXT)

    assert [result.index for result in answer.results] == [1, 2, 0, 3]
    assert [result.relevance_score for result in answer.results] == [2, 1, 0, 0]
    first = engine.calls[0].inputs[0]
    red, cat, the, dog = (ID[word] for word in ("red", "cat", "the", "dog"))
    assert list(first.token_ids) == [CLS, red, cat, SEP, the, dog, SEP]
    assert first.first_segment_tokens == 4


async def test_one_text_is_scored_with_each_and_several_with_their_counterparts(connect) -> None:
    model, engine = await connect()

    one = await score(scoring(["cat"], ["dog", "cat"]), model, CONTEXT)
    paired = await score(scoring(["cat", "red dog"], ["cat", "dog"]), model, CONTEXT)

    assert [result.score for result in one.data] == pytest.approx([0, 1])
    assert [result.score for result in paired.data] == pytest.approx([1, 1 / math.sqrt(2)])
    assert [result.index for result in paired.data] == [0, 1]
    assert [len(call.inputs) for call in engine.calls] == [3, 4]


async def test_a_cross_encoder_scores_pairs(connect) -> None:
    model, _ = await connect(**CROSS)

    one = await score(scoring(["red cat"], ["cat", "red cat"]), model, CONTEXT)
    paired = await score(scoring(["cat", "dog"], ["dog", "dog"]), model, CONTEXT)

    assert [result.score for result in one.data] == [1, 2]
    assert [result.score for result in paired.data] == [0, 1]


@pytest.mark.parametrize(("first", "second"), [(["a", "a"], ["a"]), (["a"] * 3, ["a"] * 2)])
async def test_texts_that_make_no_pairs_are_refused(connect, first, second) -> None:
    model, _ = await connect()

    with pytest.raises(ApiError, match=f"has {len(second)}, not {len(first)}") as caught:
        await score(scoring(first, second), model, CONTEXT)

    assert caught.value.param == "text_1"


@pytest.mark.parametrize("info", [CROSS, {}], ids=["cross-encoder", "embeddings"])
async def test_a_text_that_is_too_long_is_named_and_may_be_cut(connect, info) -> None:
    model, engine = await connect(**info)
    texts = scoring(["cat"], ["red", "red " * 20])

    with pytest.raises(ApiError, match="at most 12") as caught:
        await score(texts, model, CONTEXT)
    texts.truncate_prompt_tokens = -1
    cut = await score(texts, model, CONTEXT)

    assert caught.value.param == "text_2[1]"
    assert len(cut.data) == 2
    assert max(len(one.token_ids) for one in engine.calls[0].inputs) == 12


@pytest.mark.parametrize(
    "info", [{"embedding_size": 0, "num_labels": 3}, {"embedding_size": 0, "generates": True}]
)
async def test_a_model_that_gives_no_score_says_so(connect, info) -> None:
    model, _ = await connect(**info)

    with pytest.raises(ApiError) as caught:
        await rerank(ranking(), model, CONTEXT)

    assert caught.value.param == "model"
