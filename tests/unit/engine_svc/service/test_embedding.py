"""What a call to embed or score may ask for."""

from __future__ import annotations

import dataclasses

import pytest
from google.rpc.code_pb2 import Code
from octavo.engine.v1 import engine_pb2 as pb

from engine_svc.service.embedding import MAX_INPUTS, EmbedLimits, parse_embed
from engine_svc.service.errors import RequestError

EMBEDS = EmbedLimits(
    task=pb.EMBED_TASK_EMBEDDING,
    max_model_len=8,
    vocab_size=100,
    has_segments=True,
    accepts_priority=True,
    tokenizer_sha256="tok",
    weights_version="w1",
)
SCORES = dataclasses.replace(EMBEDS, task=pb.EMBED_TASK_SCORE)


def request(*inputs: pb.EmbedInput, **fields) -> pb.EmbedRequest:
    fields.setdefault("task", pb.EMBED_TASK_EMBEDDING)
    return pb.EmbedRequest(inputs=inputs or [pb.EmbedInput(token_ids=[1, 2])], **fields)


def refusal(message: pb.EmbedRequest, limits: EmbedLimits = EMBEDS) -> RequestError:
    with pytest.raises(RequestError) as refused:
        parse_embed(message, limits)
    return refused.value


def test_inputs_keep_their_order_and_segments() -> None:
    message = request(
        pb.EmbedInput(token_ids=[1, 2, 3], first_segment_tokens=2), pb.EmbedInput(token_ids=[4])
    )

    assert parse_embed(message, EMBEDS) == (((1, 2, 3), 2), ((4,), 1))


def test_a_model_without_segments_has_all_tokens_in_the_first() -> None:
    limits = dataclasses.replace(EMBEDS, has_segments=False)
    message = request(pb.EmbedInput(token_ids=[1, 2, 3], first_segment_tokens=2))

    assert parse_embed(message, limits) == (((1, 2, 3), 3),)


def test_an_input_as_long_as_the_model_takes_is_fine() -> None:
    assert parse_embed(request(pb.EmbedInput(token_ids=[0] * 8)), EMBEDS)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.EmbedRequest(task=pb.EMBED_TASK_EMBEDDING), "inputs: must be from 1 to 2048, not 0"),
        (
            request(*[pb.EmbedInput(token_ids=[1])] * (MAX_INPUTS + 1)),
            "inputs: must be from 1 to 2048, not 2049",
        ),
        (
            request(pb.EmbedInput(token_ids=[1]), pb.EmbedInput()),
            "inputs[1].token_ids: must not be empty",
        ),
        (
            request(pb.EmbedInput(token_ids=[1] * 9)),
            "inputs[0].token_ids: has 9 tokens, the model takes at most 8",
        ),
        (
            request(pb.EmbedInput(token_ids=[1, 100])),
            "inputs[0].token_ids[1]: token id 100 is not below the vocabulary's size 100",
        ),
        (
            request(pb.EmbedInput(token_ids=[1, 2], first_segment_tokens=3)),
            "inputs[0].first_segment_tokens: 3 is above the 2 tokens of the input",
        ),
        (request(request_id="x" * 513), "request_id: must have at most 512 characters"),
        (request(task=0), "task: must be EMBED_TASK_EMBEDDING or EMBED_TASK_SCORE"),
        (request(task=7), "task: must be EMBED_TASK_EMBEDDING or EMBED_TASK_SCORE"),
        (
            request(task=pb.EMBED_TASK_SCORE),
            "task: the loaded model has no classifier: it embeds, it does not score",
        ),
    ],
)
def test_what_is_wrong_is_named(message: pb.EmbedRequest, text: str) -> None:
    error = refusal(message)

    assert error.status.code == Code.INVALID_ARGUMENT
    assert error.status.message == text


def test_a_classifier_does_not_embed() -> None:
    assert "it scores, it does not embed" in refusal(request(), SCORES).status.message


def test_another_tokeniser_than_expected_is_a_failed_precondition() -> None:
    error = refusal(request(expect=pb.Expect(tokenizer_sha256="other")))

    assert error.status.code == Code.FAILED_PRECONDITION


def test_a_priority_needs_a_policy_that_has_it() -> None:
    limits = dataclasses.replace(EMBEDS, accepts_priority=False)

    assert refusal(request(priority=1), limits).status.message.startswith("priority: ")
