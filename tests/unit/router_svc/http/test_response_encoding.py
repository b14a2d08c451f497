"""The generated encoders by themselves: what a message becomes as JSON."""

import math

import orjson
import pytest
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.errors import ApiError
from router_svc.gen import inference_encode as encode


def test_what_is_unset_is_null_or_left_out_as_its_field_says() -> None:
    body = encode.encode_chat_choice(pb.ChatChoice(message=pb.AssistantMessage()))

    assert body == {
        "index": 0,
        "message": {"role": None, "content": None, "refusal": None},
        "logprobs": None,
        "finish_reason": None,
        "stop_reason": None,
    }


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (pb.StopReason(text="\n"), "\n"),
        (pb.StopReason(token_id=0), 0),
        (pb.StopReason(), None),
        (None, None),
    ],
)
def test_a_union_is_its_member(reason: pb.StopReason | None, shown: object) -> None:
    choice = pb.ChatChoice(message=pb.AssistantMessage(), stop_reason=reason)

    assert encode.encode_chat_choice(choice)["stop_reason"] == shown


def test_the_first_token_of_an_echoed_prompt_has_no_logprob() -> None:
    by_token = pb.LogprobsByToken(items={"a": -0.5})
    logprobs = pb.CompletionLogprobs(
        tokens=["x", "a"],
        token_logprobs=[pb.OptionalDouble(), pb.OptionalDouble(number=-0.5)],
        top_logprobs=[pb.TopLogprobMap(), pb.TopLogprobMap(entries=by_token)],
        text_offset=[0, 1],
    )

    assert orjson.dumps(encode.encode_completion_logprobs(logprobs)) == (
        b'{"tokens":["x","a"],"token_logprobs":[null,-0.5],'
        b'"top_logprobs":[null,{"a":-0.5}],"text_offset":[0,1]}'
    )


def test_a_constant_is_sent_whatever_the_message_holds() -> None:
    assert encode.encode_model(pb.Model(id="m", object="typo"))["object"] == "model"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_an_error_everywhere(number: float) -> None:
    for logprobs in (
        pb.ChatLogprobs(content=[pb.TokenLogprob(logprob=number)]),
        pb.ChatLogprobs(content=[pb.TokenLogprob(top_logprobs=[pb.TopLogprob(logprob=number)])]),
    ):
        with pytest.raises(ApiError, match="not a finite number"):
            encode.encode_chat_logprobs(logprobs)
    with pytest.raises(ApiError, match="not a finite number"):
        encode.encode_logprobs_by_token(pb.LogprobsByToken(items={"a": number}))


def test_empty_lists_that_were_not_asked_for_are_left_out() -> None:
    body = encode.encode_completion_choice(pb.CompletionChoice(text="a"))

    assert not {"token_ids", "prompt_token_ids", "prompt_logprobs"} & body.keys()
