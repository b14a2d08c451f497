"""Embeddings, rerank and scores over the real server: real numbers, real clients, every refusal."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import openai
import pytest
import torch
from octavo.inference.v1 import embeddings_pb2 as pb
from octavo.inference.v1 import embeddings_pb2_grpc
from octavo.inference.v1.inference_pb2 import Prompt
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.support.public_api import CHAT, COMPLETIONS, PublicApi, chat_body
from tests.support.server import running_server
from tests.support.tiny_encoders import make_tiny_encoder

EMBEDDINGS, RERANK, SCORE = "/v1/embeddings", "/rerank", "/v1/score"
MODEL = "minilm"
SIZE, LIMIT = 384, 256  # of all-MiniLM-L6-v2: numbers of a vector, tokens of an input
REFERENCE = Path(__file__).parents[1] / "data" / "minilm_sentence_transformers.json"


@pytest.fixture(scope="module")
def encoder(
    minilm_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublicApi]:
    """A client of a server with all-MiniLM-L6-v2."""
    log = tmp_path_factory.mktemp("encoder") / "log"
    with running_server(minilm_checkpoint, "--served-model-name", MODEL, log=log) as server:
        client = PublicApi(server)
        yield client
        client.close()


@pytest.fixture(scope="module")
def cross_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny cross-encoder with random weights."""
    return make_tiny_encoder("bert", tmp_path_factory.mktemp("cross") / "model", num_labels=1)


@pytest.fixture(scope="module")
def cross(cross_checkpoint: Path) -> Iterator[PublicApi]:
    """A client of a server with the cross-encoder."""
    log = cross_checkpoint.with_name("log")
    with running_server(cross_checkpoint, "--served-model-name", "cross", log=log) as server:
        client = PublicApi(server)
        yield client
        client.close()


@pytest.fixture(scope="module")
def reference() -> list[dict[str, Any]]:
    """Texts with the tokens and vectors that sentence-transformers makes of them."""
    return json.loads(REFERENCE.read_text())["inputs"]


def decoded(packed: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed, validate=True), "<f4")


def embed(api: PublicApi, given: object, **fields: Any) -> np.ndarray:
    """The vectors [num_inputs, size] of a request."""
    data = api.ok(EMBEDDINGS, input=given, **fields)["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    assert {one["object"] for one in data} == {"embedding"}
    if fields.get("encoding_format") == "base64":
        return np.stack([decoded(one["embedding"]) for one in data])
    return np.array([one["embedding"] for one in data], np.float32)


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
def test_vectors_are_those_of_sentence_transformers_alone_and_batched(
    encoder: PublicApi, reference: list[dict[str, Any]], encoding_format: str
) -> None:
    expected = np.stack([decoded(one["vector"]) for one in reference])
    fields = {"encoding_format": encoding_format, "truncate_prompt_tokens": -1}

    alone = [embed(encoder, one["text"], **fields)[0] for one in reference]
    batched = embed(encoder, [one["text"] for one in reference], **fields)

    assert np.abs(alone - expected).max() < 1e-4
    assert np.abs(batched - expected).max() < 1e-4


def test_token_ids_give_what_their_text_gives(
    encoder: PublicApi, reference: list[dict[str, Any]]
) -> None:
    texts = [one["text"] for one in reference]
    ids = [one["token_ids"] for one in reference]

    of_texts = embed(encoder, texts, truncate_prompt_tokens=-1)

    assert np.array_equal(embed(encoder, ids), of_texts)
    assert np.array_equal(embed(encoder, ids[0])[0], of_texts[0])


def test_many_clients_at_once_get_what_each_gets_alone(
    encoder: PublicApi, reference: list[dict[str, Any]]
) -> None:
    texts = [one["text"] for one in reference] * 4

    def one(text: str) -> np.ndarray:
        return embed(encoder, text, truncate_prompt_tokens=-1)[0]

    alone = [one(text) for text in texts[: len(reference)]] * 4
    with ThreadPoolExecutor(16) as clients:
        together = list(clients.map(one, texts))

    assert np.abs(np.stack(alone) - np.stack(together)).max() < 1e-5


def test_an_answer_has_openais_form(encoder: PublicApi) -> None:
    answer = encoder.ok(EMBEDDINGS, model=MODEL, input="The sea is blue.", user="me")

    assert list(answer) == ["object", "data", "model", "usage"]
    assert answer["object"] == "list"
    assert answer["model"] == MODEL
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    (one,) = answer["data"]
    assert len(one["embedding"]) == SIZE
    assert np.linalg.norm(one["embedding"]) == pytest.approx(1, abs=1e-5)


def test_fewer_dimensions_are_the_beginning_at_length_1(encoder: PublicApi) -> None:
    whole, short = embed(encoder, "hello")[0], embed(encoder, "hello", dimensions=64)[0]

    assert short == pytest.approx(whole[:64] / np.linalg.norm(whole[:64]), abs=1e-6)
    assert np.linalg.norm(short) == pytest.approx(1, abs=1e-6)


def test_a_large_batch_is_answered_in_order(encoder: PublicApi) -> None:
    texts = [f"number {i}" for i in range(300)]

    vectors = embed(encoder, texts, encoding_format="base64")

    assert vectors.shape == (300, SIZE)
    assert np.abs(vectors[[0, 299]] - embed(encoder, [texts[0], texts[299]])).max() < 1e-5


@pytest.mark.parametrize(("kept", "count"), [(-1, 6), (2, 2), (4, 4), (LIMIT, 6)])
def test_an_input_is_cut_where_asked(encoder: PublicApi, kept: int, count: int) -> None:
    answer = encoder.ok(EMBEDDINGS, input="a b c d", truncate_prompt_tokens=kept)

    assert answer["usage"]["prompt_tokens"] == count


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [30522]}, "input[0]"),
        ({"input": ["a", "word " * LIMIT]}, "input[1]"),
        ({"input": [[101] * (LIMIT + 1)]}, "input[0]"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": SIZE + 1}, "dimensions"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 1}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": LIMIT + 1}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": 10**9}, "truncate_prompt_tokens"),
        ({"input": "a", "normalize": True}, "normalize"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:50],
)
def test_what_cannot_be_embedded_is_refused_by_name(
    encoder: PublicApi, body: dict, param: str
) -> None:
    assert encoder.refused(EMBEDDINGS, body)["param"].startswith(param)


def test_an_input_that_is_too_long_is_refused_with_both_numbers(encoder: PublicApi) -> None:
    error = encoder.refused(EMBEDDINGS, {"input": "word " * 300})

    assert error["code"] == "context_length_exceeded"
    assert "302 tokens" in error["message"]
    assert str(LIMIT) in error["message"]


@pytest.mark.parametrize("path", [EMBEDDINGS, RERANK, SCORE])
def test_another_model_is_not_found(encoder: PublicApi, path: str) -> None:
    body = {
        EMBEDDINGS: {"input": "a"},
        RERANK: {"query": "a", "documents": ["a"]},
        SCORE: {"text_1": "a", "text_2": "a"},
    }[path]

    assert encoder.refused(path, body | {"model": "other"}, status=404)["param"] == "model"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_encoder_does_not_generate(encoder: PublicApi, path: str, stream: bool) -> None:
    body = chat_body("hi") if path == CHAT else {"prompt": "hi"}

    error = encoder.refused(path, body | {"stream": stream})

    assert error["param"] == "model"
    assert "does not generate" in error["message"]


def test_a_generator_embeds_and_ranks_by_its_last_token(tiny: PublicApi) -> None:
    greedy = tiny.complete("hello", max_tokens=8)

    first, second, other = embed(tiny, ["hello", "hello", "world"])
    ranked = tiny.ok(RERANK, query="hello", documents=["world", "hello"])["results"]

    assert np.array_equal(first, second)
    assert ranked[0]["index"] == 1
    assert ranked[0]["relevance_score"] == pytest.approx(1, abs=1e-5)
    assert ranked[1]["relevance_score"] == pytest.approx(float(first @ other), abs=1e-5)
    assert tiny.complete("hello", max_tokens=8) == greedy
    assert tiny.server.wait_until(tiny.server.idle)


@pytest.fixture(scope="module")
def client(encoder: PublicApi) -> Iterator[openai.OpenAI]:
    url = f"{encoder.server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="unused", max_retries=0) as client:
        yield client


def test_openais_client_asks_for_base64_and_shows_numbers(client: openai.OpenAI) -> None:
    default = client.embeddings.create(model=MODEL, input=["hello", "world"])
    floats = client.embeddings.create(model=MODEL, input="hello", encoding_format="float")
    packed = client.embeddings.create(model=MODEL, input="hello", encoding_format="base64")

    assert [len(one.embedding) for one in default.data] == [SIZE, SIZE]
    assert default.data[0].embedding == pytest.approx(floats.data[0].embedding, abs=1e-7)
    assert decoded(packed.data[0].embedding).tolist() == pytest.approx(
        floats.data[0].embedding, abs=1e-7
    )
    assert np.abs(default.data[1].embedding).max() > 0
    assert default.usage.prompt_tokens == default.usage.total_tokens == 6


def test_openais_client_gets_its_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=MODEL, input="hello", dimensions=1000)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="hello")

    assert caught.value.param == "dimensions"
    assert "384" in caught.value.message


def test_a_grpc_client_gets_the_same_vectors_and_refusals(encoder: PublicApi) -> None:
    with grpc.insecure_channel(encoder.server.grpc_target) as channel:
        stub = embeddings_pb2_grpc.EmbeddingsStub(channel)
        answer = stub.CreateEmbeddings(pb.CreateEmbeddingsRequest(input=Prompt(text="hello")))
        with pytest.raises(grpc.RpcError) as caught:
            stub.CreateEmbeddings(pb.CreateEmbeddingsRequest())

    assert list(answer.data[0].embedding.floats.items) == embed(encoder, "hello")[0].tolist()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


QUERY = "What is the capital of France?"
DOCUMENTS = ["Dogs bark at night.", "Paris is the capital of France.", "France is in Europe."]


@pytest.mark.parametrize("path", [RERANK, "/v1/rerank", "/v2/rerank"])
def test_documents_are_ordered_by_the_cosine_of_their_embeddings(
    encoder: PublicApi, path: str
) -> None:
    answer = encoder.ok(path, query=QUERY, documents=DOCUMENTS, model=MODEL)

    query, *documents = embed(encoder, [QUERY, *DOCUMENTS])
    scores = [result["relevance_score"] for result in answer["results"]]
    assert [result["index"] for result in answer["results"]] == [1, 2, 0]
    assert scores == pytest.approx([float(query @ documents[i]) for i in (1, 2, 0)], abs=1e-5)
    assert answer["results"][0]["document"] == {"text": DOCUMENTS[1]}
    assert answer["usage"]["prompt_tokens"] > 0


def test_the_best_documents_alone_may_come_without_their_text(encoder: PublicApi) -> None:
    documents = [DOCUMENTS[0], {"text": DOCUMENTS[1]}]

    answer = encoder.ok(RERANK, query=QUERY, documents=documents, top_n=1, return_documents=False)

    (result,) = answer["results"]
    assert list(result) == ["index", "relevance_score"]
    assert result["index"] == 1


@pytest.mark.parametrize("path", [SCORE, "/score"])
def test_scores_are_cosines_of_one_with_all_or_of_pairs(encoder: PublicApi, path: str) -> None:
    one = encoder.ok(path, text_1=QUERY, text_2=DOCUMENTS)["data"]
    pairs = encoder.ok(path, text_1=[QUERY] * 3, text_2=DOCUMENTS)["data"]

    query, *documents = embed(encoder, [QUERY, *DOCUMENTS])
    assert [entry["score"] for entry in one] == pytest.approx(
        [float(query @ document) for document in documents], abs=1e-5
    )
    assert [entry["score"] for entry in pairs] == pytest.approx(
        [entry["score"] for entry in one], abs=1e-6
    )
    assert [(entry["index"], entry["object"]) for entry in one] == [(i, "score") for i in range(3)]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (RERANK, {"query": "a"}, "documents"),
        (RERANK, {"documents": ["a"]}, "query"),
        (RERANK, {"query": "a", "documents": []}, "documents"),
        (RERANK, {"query": "a", "documents": ["a", 5]}, "documents[1]"),
        (RERANK, {"query": "a", "documents": [{"title": "a"}]}, "documents[0]"),
        (RERANK, {"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
        (RERANK, {"query": "word " * 300, "documents": ["a"]}, "query"),
        (RERANK, {"query": "a", "documents": ["a", "word " * 300]}, "documents[1]"),
        (SCORE, {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        (SCORE, {"text_1": "a"}, "text_2"),
        (SCORE, {"text_1": "a", "text_2": []}, "text_2"),
        (SCORE, {"text_1": "a", "text_2": "a", "truncate_prompt_tokens": 0}, "truncate_"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:50],
)
def test_what_cannot_be_ranked_is_refused_by_name(
    encoder: PublicApi, path: str, body: dict, param: str
) -> None:
    assert encoder.refused(path, body)["param"].startswith(param)


PAIRS = [("the sea is blue", "what is the sea?"), ("octavo", "the sheet folded"), ("a", "b c d")]


def classified(checkpoint: Path, pairs: list[tuple[str, str]]) -> list[float]:
    """The classifier's outputs by transformers, as probabilities."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    scores = []
    for pair in pairs:
        with torch.inference_mode():
            inputs = tokenizer(*pair, return_tensors="pt", return_token_type_ids=True)
            logits = model(**inputs).logits
        scores.append(torch.sigmoid(logits[0, 0]).item())
    return scores


def test_a_cross_encoder_scores_as_transformers_does(
    cross: PublicApi, cross_checkpoint: Path
) -> None:
    first, second = zip(*PAIRS, strict=True)

    answer = cross.ok(SCORE, text_1=first, text_2=second)

    scores = [entry["score"] for entry in answer["data"]]
    assert scores == pytest.approx(classified(cross_checkpoint, PAIRS), abs=1e-5)
    assert len(set(scores)) == 3


def test_a_cross_encoder_ranks_as_transformers_does(
    cross: PublicApi, cross_checkpoint: Path
) -> None:
    documents = [second for _, second in PAIRS]

    answer = cross.ok(RERANK, query="the sky", documents=documents)

    expected = classified(cross_checkpoint, [("the sky", document) for document in documents])
    by_index = {result["index"]: result["relevance_score"] for result in answer["results"]}
    assert [by_index[i] for i in range(3)] == pytest.approx(expected, abs=1e-5)
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)


def test_a_cross_encoder_makes_no_embeddings(cross: PublicApi) -> None:
    assert cross.refused(EMBEDDINGS, {"input": "a"})["param"] == "model"
