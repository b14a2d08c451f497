"""Embeddings: the forms of input and of vectors, what is cut and what is refused."""

from __future__ import annotations

import base64
import math
import struct

import pytest
from octavo.inference.v1 import embeddings_pb2 as pb
from octavo.inference.v1.inference_pb2 import Prompt, TextList, TokenIds, TokenIdsList

from router_svc.api.embeddings import create
from router_svc.call_context import CallContext
from router_svc.errors import ApiError
from tests.support.word_pieces import CLS, ID, SEP, WORDS

CONTEXT = CallContext("r")
TEXT = "the cat sat on the mat"


def request(*texts: str, **fields: object) -> pb.CreateEmbeddingsRequest:
    prompt = Prompt(texts=TextList(items=texts)) if len(texts) > 1 else Prompt(text=texts[0])
    return pb.CreateEmbeddingsRequest(input=prompt, **fields)  # type: ignore[arg-type]


def of_ids(*prompts: list[int], **fields: object) -> pb.CreateEmbeddingsRequest:
    lists = TokenIdsList(items=[TokenIds(items=ids) for ids in prompts])
    return pb.CreateEmbeddingsRequest(input=Prompt(token_ids_list=lists), **fields)  # type: ignore[arg-type]


def vectors(answer: pb.CreateEmbeddingsResponse) -> list[list[float]]:
    return [list(one.embedding.floats.items) for one in answer.data]


async def refusal(model, given: pb.CreateEmbeddingsRequest) -> tuple[str | None, str]:
    with pytest.raises(ApiError) as caught:
        await create(given, model, CONTEXT)
    return caught.value.param, caught.value.message


async def test_every_text_gets_its_vector_and_the_usage_counts_special_tokens(connect) -> None:
    model, engine = await connect()

    answer = await create(request(TEXT, "a dog"), model, CONTEXT)

    assert [one.index for one in answer.data] == [0, 1]
    assert vectors(answer)[0][:5] == [2, 1, 1, 1, 1]
    assert vectors(answer)[1][5:7] == [1, 1]
    assert answer.model == "encoder"
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (12, 12)
    assert len(engine.calls) == 1


async def test_token_ids_are_taken_as_they_are(connect) -> None:
    model, engine = await connect()
    ids = [CLS, ID["cat"], SEP]

    await create(of_ids(ids, [ID["dog"]]), model, CONTEXT)
    await create(
        pb.CreateEmbeddingsRequest(input=Prompt(token_ids=TokenIds(items=ids))), model, CONTEXT
    )

    sent = [list(one.token_ids) for call in engine.calls for one in call.inputs]
    assert sent == [ids, [ID["dog"]], ids]


async def test_special_tokens_can_be_left_away(connect) -> None:
    model, engine = await connect()

    await create(request("cat", add_special_tokens=False), model, CONTEXT)

    assert list(engine.calls[0].inputs[0].token_ids) == [ID["cat"]]


async def test_base64_is_the_same_vector_in_little_endian_float32(connect) -> None:
    model, _ = await connect()

    floats = await create(request(TEXT, encoding_format=pb.ENCODING_FORMAT_FLOAT), model, CONTEXT)
    packed = await create(request(TEXT, encoding_format=pb.ENCODING_FORMAT_BASE64), model, CONTEXT)

    raw = base64.b64decode(packed.data[0].embedding.base64, validate=True)
    assert list(struct.unpack(f"<{len(WORDS)}f", raw)) == vectors(floats)[0]


async def test_dimensions_keep_the_beginning_at_length_1(connect) -> None:
    model, _ = await connect()

    (vector,) = vectors(await create(request(TEXT, dimensions=2), model, CONTEXT))

    assert vector == pytest.approx([2 / math.sqrt(5), 1 / math.sqrt(5)])


async def test_a_beginning_of_nothing_stays_nothing(connect) -> None:
    model, _ = await connect()

    (vector,) = vectors(await create(request("blue", dimensions=3), model, CONTEXT))

    assert vector == [0, 0, 0]


async def test_more_dimensions_than_there_are_are_refused_with_both_numbers(connect) -> None:
    model, _ = await connect()

    assert await refusal(model, request(TEXT, dimensions=13)) == (
        "dimensions",
        "must be at most 12, the size of an embedding, not 13",
    )


@pytest.mark.parametrize(("kept", "ids"), [(2, []), (4, ["the", "cat"]), (12, None), (-1, None)])
async def test_an_input_is_cut_where_asked(connect, kept: int, ids: list[str] | None) -> None:
    model, engine = await connect()
    words = TEXT.split() if ids is None else ids

    answer = await create(request(TEXT, truncate_prompt_tokens=kept), model, CONTEXT)

    expected = [CLS, *(ID[word] for word in words), SEP]
    assert list(engine.calls[0].inputs[0].token_ids) == expected
    assert answer.usage.prompt_tokens == len(expected)


async def test_minus_one_cuts_to_what_the_model_takes(connect) -> None:
    model, engine = await connect()

    await create(request("red " * 50, truncate_prompt_tokens=-1), model, CONTEXT)
    await create(of_ids([ID["red"]] * 50, truncate_prompt_tokens=-1), model, CONTEXT)

    sent = [list(call.inputs[0].token_ids) for call in engine.calls]
    assert sent == [[CLS, *[ID["red"]] * 10, SEP], [ID["red"]] * 12]


@pytest.mark.parametrize("kept", [0, 13, 1])
async def test_a_number_of_tokens_that_cannot_be_kept_is_refused(connect, kept: int) -> None:
    model, engine = await connect()

    param, _ = await refusal(model, request(TEXT, truncate_prompt_tokens=kept))

    assert param == "truncate_prompt_tokens"
    assert engine.calls == []


async def test_an_input_that_is_too_long_is_refused_by_its_place_with_both_numbers(connect) -> None:
    model, engine = await connect()

    param, message = await refusal(model, request("cat", "red " * 11))

    assert param == "input[1]"
    assert "13 tokens" in message
    assert "at most 12" in message
    assert engine.calls == []


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (of_ids([1], [2, 17]), "input[1][1]"),
        (request("", add_special_tokens=False), "input"),
        (request("cat", "", add_special_tokens=False), "input[1]"),
    ],
)
async def test_what_is_no_input_is_refused_by_its_place(connect, given, param: str) -> None:
    model, _ = await connect()

    assert (await refusal(model, given))[0] == param


async def test_a_model_without_embeddings_says_so(connect) -> None:
    model, _ = await connect(embedding_size=0, num_labels=1)

    assert await refusal(model, request(TEXT)) == ("model", "the model encoder makes no embeddings")


async def test_many_inputs_are_split_over_calls_and_come_back_in_order(connect) -> None:
    model, engine = await connect()
    texts = [WORDS[i % 7] for i in range(600)]

    answer = await create(request(*texts, priority=4), model, CONTEXT)

    assert [vector.index(1) for vector in vectors(answer)] == [i % 7 for i in range(600)]
    assert [len(call.inputs) for call in engine.calls] == [256, 256, 88]
    assert {call.priority for call in engine.calls} == {4}
    assert answer.usage.prompt_tokens == 1800
