"""The HTTP surface: what is refused, by which status and in which words.

The client checks the one error shape of every failed answer (tests/support/public_api.py).
"""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest
from octavo.inference.v1 import inference_pb2 as pb

from tests.support.public_api import CHAT, COMPLETIONS, POST_ROUTES, PublicApi, chat_body

JSON = {"content-type": "application/json"}
BODIES = {
    CHAT: chat_body("hi", max_tokens=1),
    COMPLETIONS: {"prompt": "hi", "max_tokens": 1},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [40]},
}


@pytest.mark.parametrize("path", POST_ROUTES)
def test_a_body_must_say_that_it_is_json(tiny: PublicApi, path: str) -> None:
    content = json.dumps(BODIES[path])

    def status(headers: dict[str, str]) -> int:
        return tiny.http.post(path, content=content, headers=headers).status_code

    assert status({}) == 415
    assert status({"content-type": "application/x-www-form-urlencoded"}) == 415
    assert status({"content-type": "application/json; charset=utf-8"}) == 200


@pytest.mark.parametrize("path", POST_ROUTES)
@pytest.mark.parametrize(
    "raw", ["[]", "[1]", "true", "null", "123", "1.5", '"abc"', "", "{", "{}{}", "NaN"]
)
def test_a_body_that_is_no_object_is_refused(tiny: PublicApi, path: str, raw: str) -> None:
    assert tiny.http.post(path, content=raw, headers=JSON).status_code == 400


@pytest.mark.parametrize("path", POST_ROUTES)
@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe", b"\xc0\x80", b"\\ud800", "访问".encode("gbk")],
    ids=["ff-fe", "overlong", "lone-surrogate", "gbk"],
)
def test_text_that_is_not_unicode_is_refused(tiny: PublicApi, path: str, text: bytes) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "@"}]}).encode()
    if path != CHAT:
        body = json.dumps({"prompt": "@"}).encode()

    response = tiny.http.post(path, content=body.replace(b"@", text), headers=JSON)

    assert response.status_code == 400


def test_nul_and_other_control_characters_are_text(api: PublicApi) -> None:
    text = "a\x00b\x01\x7f\u2028c"

    answer = api.complete(text, echo=True, max_tokens=1)

    assert answer.text.startswith(text)


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"some_extra": 1}, "some_extra"),
        ({"guided_json": {}}, "guided_json"),
        ({"max_tokens": "1"}, "max_tokens"),
        ({"messages": "a"}, "messages"),
        ({"messages": [{"role": "user", "content": "a", "extra": 1}]}, "messages[0].extra"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        ({"stream": "yes"}, "stream"),
        ({"user": 123}, "user"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"nothing": True}}, "stream_options.nothing"),
        ({"request_id": "forged\nlog line"}, "request_id"),
        ({"model": 5}, "model"),
        ({"store": True}, "store"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:40],
)
def test_an_unknown_or_wrong_field_is_named(tiny: PublicApi, wrong: dict, param: str) -> None:
    assert tiny.refused(CHAT, chat_body("a", max_tokens=1) | wrong)["param"] == param


@pytest.mark.parametrize(
    ("path", "feature"),
    [
        (CHAT, {"functions": [{"name": "f"}]}),
        (CHAT, {"function_call": "auto"}),
        (CHAT, {"guided_regex": "a+"}),
        (CHAT, {"store": True}),
        (CHAT, {"chat_template": "{{ 1 }}"}),
        (CHAT, {"modalities": ["audio"]}),
        # The tiny model's vocabulary has no tokens to infill with.
        (COMPLETIONS, {"suffix": "x"}),
        (COMPLETIONS, {"best_of": 100_000}),
        (COMPLETIONS, {"guided_json": {}}),
    ],
    ids=str,
)
def test_what_is_not_served_is_refused_rather_than_dropped(
    tiny: PublicApi, path: str, feature: dict
) -> None:
    (name,) = feature

    assert tiny.refused(path, BODIES[path] | feature)["param"] == name


@pytest.mark.parametrize(
    "path", ["/v1/images/generations", "/v1/responses/resp_1", "/v2/chat/completions", "/x"]
)
def test_a_path_that_is_not_served_is_not_found(tiny: PublicApi, path: str) -> None:
    tiny.refused(path, {"input": "x"}, status=404)


@pytest.mark.parametrize("path", POST_ROUTES)
def test_another_method_is_told_the_right_one(tiny: PublicApi, path: str) -> None:
    response = tiny.http.get(path)

    assert response.status_code == 405
    assert "POST" in response.headers["allow"]


@pytest.mark.parametrize("path", POST_ROUTES)
def test_a_model_that_is_not_served_is_not_found(tiny: PublicApi, path: str) -> None:
    error = tiny.refused(path, BODIES[path] | {"model": "gpt-9"}, status=404)

    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_other_origins_are_not_let_in(tiny: PublicApi) -> None:
    response = tiny.http.options(
        CHAT,
        headers={
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        },
    )

    assert response.status_code == 204
    assert not any(name.startswith("access-control-") for name in response.headers)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere"])
def test_every_answer_carries_a_request_id(tiny: PublicApi, path: str) -> None:
    first, second = tiny.http.get(path), tiny.http.get(path)

    assert first.headers["x-request-id"] != second.headers["x-request-id"]


def test_long_text_of_the_user_is_shortened_in_the_refusal(tiny: PublicApi) -> None:
    error = tiny.refused(CHAT, {"messages": [{"role": "x" * 100_000, "content": "a"}]})

    assert error["param"] == "messages[0].role"
    assert len(error["message"]) < 300


def test_a_body_beyond_the_cap_is_refused_and_the_server_goes_on(tiny: PublicApi) -> None:
    body = b'{"prompt": "' + b"a" * (33 << 20) + b'"}'

    # The server answers and closes without reading on; a client still sending may see only that.
    with contextlib.suppress(httpx.TransportError):
        response = tiny.http.post(COMPLETIONS, content=body, headers=JSON)
        assert response.status_code == 413

    assert tiny.complete("hi", max_tokens=1).usage["completion_tokens"] == 1


def test_a_message_beyond_the_cap_is_refused_over_grpc(tiny: PublicApi) -> None:
    request = pb.CreateCompletionRequest(prompt=pb.Prompt(text="a" * (33 << 20)))

    with pytest.raises(grpc.RpcError) as caught:
        tiny.grpc.CreateCompletion(request)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert tiny.complete("hi", max_tokens=1).usage["completion_tokens"] == 1


@pytest.mark.parametrize(
    "prompt", ["a " * 2_500_000, [5] * 2_000_000], ids=["5-MB-of-text", "2M-ids"]
)
def test_a_huge_prompt_gets_a_clear_refusal(tiny: PublicApi, prompt: object) -> None:
    with ThreadPoolExecutor(1) as pool:
        refusal = pool.submit(tiny.refused, COMPLETIONS, {"prompt": prompt})
        while not refusal.done():
            assert tiny.http.get("/health").status_code == 200

    assert refusal.result()["code"] == "context_length_exceeded"


def test_a_large_answer_arrives_whole(api: PublicApi) -> None:
    ids = [(7 * i) % 40_000 + 300 for i in range(600)]

    response = api.post(
        COMPLETIONS, {"prompt": [ids], "prompt_logprobs": 20, "n": 8, "max_tokens": 1}
    )

    assert len(response.content) > 4 << 20
    for choice in response.json()["choices"]:
        entries = choice["prompt_logprobs"]
        assert [e["token"]["token_id"] for e in entries[1:]] == ids[1:]
        assert all(len(e["top"]) == 20 for e in entries[1:])
