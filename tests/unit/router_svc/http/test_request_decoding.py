"""The generated decoders by themselves: what a JSON value becomes."""

from typing import Any

import pytest
from octavo.inference.v1 import inference_pb2 as pb

from router_svc.errors import ApiError
from router_svc.gen import inference_decode as decode
from router_svc.http import decoding


def chat(**fields: Any) -> pb.CreateChatCompletionRequest:
    """A decoded conversation with the given fields on top."""
    body = {"messages": [{"role": "user", "content": "a"}]} | fields
    return decode.decode_create_chat_completion_request(body, "")


def test_absent_is_not_zero() -> None:
    assert not chat().HasField("temperature")
    assert chat(temperature=0).HasField("temperature")


def test_null_is_absent() -> None:
    request = chat(temperature=None, stop=None, stream_options=None)

    assert request == chat()


def test_one_may_be_given_without_its_array() -> None:
    assert list(chat(stop="x").stop) == list(chat(stop=["x"]).stop) == ["x"]


def test_an_integer_is_a_number_but_a_number_is_no_integer() -> None:
    assert chat(temperature=1).temperature == 1.0
    with pytest.raises(ApiError, match=r"^max_tokens must be an integer, not a number\.$"):
        chat(max_tokens=1.0)


def test_an_error_names_both_the_value_and_the_limits() -> None:
    with pytest.raises(ApiError, match=r"^n must be between 1 and 128, not 1000000\.$"):
        chat(n=1_000_000)


@pytest.mark.parametrize(
    ("prompt", "form"),
    [
        ("a", "text"),
        (["a"], "texts"),
        ([], "texts"),
        ([1], "token_ids"),
        ([[1]], "token_ids_list"),
        ([[]], "token_ids_list"),
    ],
)
def test_the_first_element_tells_the_form_of_a_prompt(prompt: Any, form: str) -> None:
    request = decode.decode_create_completion_request({"prompt": prompt}, "")

    assert request.prompt.WhichOneof("kind") == form


def test_content_is_text_or_parts() -> None:
    (text,) = chat().messages
    (parts,) = chat(
        messages=[{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    ).messages

    assert text.content.text == "a"
    assert parts.content.parts.items[0].text.text == "a"


def test_json_is_carried_as_text() -> None:
    request = chat(chat_template_kwargs={"b": [1, None], "a": "ä"})

    assert request.chat_template_kwargs == '{"b":[1,null],"a":"ä"}'


def test_a_constant_may_be_left_out_but_not_changed() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    assert decode.decode_tool_call(call, "").type == "function"
    with pytest.raises(ApiError, match='type must be "function", not "custom"'):
        decode.decode_tool_call(call | {"type": "custom"}, "")


@pytest.mark.parametrize("key", ["0", "7", "4294967295"])
def test_a_maps_integer_key_is_its_decimal_form(key: str) -> None:
    assert decoding.integer_key(key, "", 0, 2**32 - 1) == int(key)


@pytest.mark.parametrize(
    "key", ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "1_0", "²", "٣", "9" * 5000]
)
def test_any_other_key_is_refused(key: str) -> None:
    with pytest.raises(ApiError) as caught:
        decoding.integer_key(key, "logit_bias", 0, 2**32 - 1)

    assert (caught.value.param or "").startswith("logit_bias")


def test_a_million_token_ids_are_read_without_a_loop_in_python() -> None:
    tokens = list(range(1_000_000))

    request = decode.decode_detokenize_request({"tokens": tokens}, "")

    assert len(request.tokens) == 1_000_000


def test_the_one_wrong_id_among_many_is_found() -> None:
    tokens = [1] * 10_000 + [2**32] + [1] * 10

    with pytest.raises(ApiError) as caught:
        decode.decode_detokenize_request({"tokens": tokens}, "")

    assert caught.value.param == "tokens[10000]"
