"""Bad requests over a real socket: the right status, one error body, the field at fault."""

import json
from typing import Any

import httpx
import pytest
from error_shape import assert_error
from serving import served
from starlette.routing import Route

from router_svc.gen.inference_service import inference_service
from router_svc.http.app import build_app

CHAT = "/v1/chat/completions"
POST_ROUTES = [CHAT, "/v1/completions", "/tokenize", "/detokenize"]
JSON = {"content-type": "application/json"}


def chat(**fields: Any) -> dict[str, Any]:
    """A valid conversation with the given fields on top."""
    return {"model": "fake", "messages": [{"role": "user", "content": "a"}]} | fields


def completion(**fields: Any) -> dict[str, Any]:
    """A valid text to continue with the given fields on top."""
    return {"model": "fake", "prompt": "a"} | fields


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/json"])
@pytest.mark.parametrize("path", POST_ROUTES)
def test_a_body_must_be_declared_as_json(
    http: httpx.Client, path: str, content_type: str | None
) -> None:
    headers = {"content-type": content_type} if content_type else {}

    response = http.post(path, content=json.dumps(chat()), headers=headers)

    assert_error(response, 415)


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON", "application/json; charset=utf-8"]
)
def test_json_may_be_declared_with_parameters(http: httpx.Client, content_type: str) -> None:
    response = http.post(CHAT, content=json.dumps(chat()), headers={"content-type": content_type})

    assert response.status_code == 200


def test_a_compressed_body_is_refused_rather_than_inflated(http: httpx.Client) -> None:
    response = http.post(CHAT, content=b"\x1f\x8b", headers=JSON | {"content-encoding": "gzip"})

    assert_error(response, 415)


@pytest.mark.parametrize("path", POST_ROUTES)
@pytest.mark.parametrize(
    "body", ["[]", "[1]", "true", "null", "123", "1.5", '"abc"', "", "{", "{}x", '{"a":}']
)
def test_a_body_must_be_a_json_object(http: httpx.Client, path: str, body: str) -> None:
    response = http.post(path, content=body, headers=JSON)

    assert_error(response, 400)


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"\xc0\x80",
        b"\\ud800",
        b"\\udc00\\ud800",
        "你好".encode("gbk"),
    ],
    ids=["raw bytes", "overlong", "lone high surrogate", "wrong order", "gbk"],
)
def test_text_that_is_not_unicode_is_the_clients_error(http: httpx.Client, text: bytes) -> None:
    body = b'{"messages":[{"role":"user","content":"' + text + b'"}]}'

    response = http.post(CHAT, content=body, headers=JSON)

    assert_error(response, 400)


def test_nul_and_emoji_in_text_come_back_as_they_were(http: httpx.Client) -> None:
    text = "a\x00b \U0001f44d\U0001f3fd"

    response = http.post(CHAT, json=chat(messages=[{"role": "user", "content": text}]))

    assert response.json()["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "1" + "0" * 400])
def test_numbers_that_json_or_a_double_lack_are_refused(http: httpx.Client, literal: str) -> None:
    body = json.dumps(chat(logit_bias={"5": 7})).replace("7", literal)

    response = http.post(CHAT, content=body, headers=JSON)

    assert_error(response, 400)


@pytest.mark.parametrize("depth", [100, 200, 1_000, 100_000])
@pytest.mark.parametrize("field", ["messages", "chat_template_kwargs", "unknown"])
def test_deep_nesting_never_is_a_server_error(http: httpx.Client, field: str, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    if field == "chat_template_kwargs":
        nested = '{"a":' + nested + "}"
    body = '{"messages":[{"role":"user","content":"a"}],"' + field + '":' + nested + "}"

    response = http.post(CHAT, content=body, headers=JSON)

    if field == "chat_template_kwargs" and depth == 100:
        assert response.status_code == 200
    else:
        assert response.status_code == 400


WRONG_FIELDS = [
    ({"some_extra": 1}, "some_extra"),
    ({"guided_json": {}}, "guided_json"),
    ({"max_tokens": "1"}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 1.0}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 2**63}, "max_tokens"),
    ({"messages": "a"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": [None]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "unspecified", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "x", "typo": 1}]}, "messages[0].typo"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"stream_options": {"include_usages": True}}, "stream_options.include_usages"),
    ({"user": 123}, "user"),
    ({"user": "u" * 513}, "user"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", 5]}, "stop[1]"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": ["a", "b" * 4097]}, "stop[1]"),
    ({"n": 0}, "n"),
    ({"n": 1_000_000}, "n"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"presence_penalty": 2.1}, "presence_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": -1}, "repetition_penalty"),
    ({"top_logprobs": -1}, "top_logprobs"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 1.5}, "top_logprobs"),
    ({"logit_bias": {"-5": 1}}, "logit_bias.-5"),
    ({"logit_bias": {"abc": 1}}, "logit_bias.abc"),
    ({"logit_bias": {"05": 1}}, "logit_bias.05"),
    ({"logit_bias": {"٥": 1}}, "logit_bias.٥"),
    ({"logit_bias": {"4294967296": 1}}, "logit_bias.4294967296"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"logit_bias": {"5": "1"}}, "logit_bias.5"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
    ({"logit_bias": []}, "logit_bias"),
    ({"metadata": {"key": 1}}, "metadata.key"),
    ({"metadata": {"key": "v" * 513}}, "metadata.key"),
    ({"store": True}, "store"),
    ({"chat_template": "{{ 1 }}"}, "chat_template"),
    ({"chat_template": ""}, "chat_template"),
    ({"chat_template_kwargs": 5}, "chat_template_kwargs"),
    ({"chat_template_kwargs": [{}]}, "chat_template_kwargs"),
    ({"stop_token_ids": [1, True]}, "stop_token_ids[1]"),
    ({"stop_token_ids": [1, -1]}, "stop_token_ids[1]"),
    ({"stop_token_ids": 1}, "stop_token_ids"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG_FIELDS)
def test_a_wrong_field_of_a_conversation_is_named(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    response = http.post(CHAT, json=chat(**fields))

    error = assert_error(response, 400, param)
    assert param in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [None]}, "prompt[0]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1, -1]}, "prompt[1]"),
        ({"prompt": [[1], "a"]}, "prompt[1]"),
        ({"prompt": [[1], []]}, "prompt[1]"),
        ({"prompt": [[1, 2], [3, 1.5]]}, "prompt[1][1]"),
        ({"best_of": 100_000}, "best_of"),
        ({"logprobs": True}, "logprobs"),
        ({"max_tokens": 2**31}, "max_tokens"),
    ],
)
def test_a_wrong_field_of_a_completion_is_named(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    response = http.post("/v1/completions", json=completion(**fields))

    assert_error(response, 400, param)


def test_a_missing_conversation_is_named(http: httpx.Client) -> None:
    assert_error(http.post(CHAT, json={"model": "fake"}), 400, "messages")


@pytest.mark.parametrize(
    ("part", "param"),
    [
        (
            {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}},
            "messages[0].content[0].type",
        ),
        ({"type": "text"}, "messages[0].content[0].text"),
        ({"text": "a"}, "messages[0].content[0].type"),
        ({"type": "text", "text": "a", "file": "x"}, "messages[0].content[0].file"),
        ({"type": 5, "text": "a"}, "messages[0].content[0].type"),
        ("a", "messages[0].content[0]"),
    ],
)
def test_only_text_parts_are_served(http: httpx.Client, part: Any, param: str) -> None:
    response = http.post(CHAT, json=chat(messages=[{"role": "user", "content": [part]}]))

    assert_error(response, 400, param)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": None, "max_completion_tokens": None},
        {"n": None, "temperature": None, "stop": None, "logit_bias": None},
        {"store": False},
        {"chat_template": None},
        {"chat_template": False},
        {"stop": "x"},
        {"stop": []},
        {"temperature": 1e-5},
        {"temperature": 0},
        {"seed": -(2**63)},
        {"user": "u" * 512},
        {"logit_bias": {"70001": -100, "0": 0.5}},
        {"chat_template_kwargs": {"enable_thinking": False, "nested": {"a": [1, None]}}},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
        {"messages": [{"role": "assistant", "content": None}]},
    ],
)
def test_null_is_absence_and_limits_include_their_ends(
    http: httpx.Client, fields: dict[str, Any]
) -> None:
    assert http.post(CHAT, json=chat(**fields)).status_code == 200


@pytest.mark.parametrize("prompt", ["", "a", ["a", ""], [1, 2], [[1], [2, 3]]])
def test_a_prompt_takes_four_forms(http: httpx.Client, prompt: Any) -> None:
    response = http.post("/v1/completions", json=completion(prompt=prompt, max_tokens=None))

    assert response.status_code == 200


def test_long_user_text_is_shortened_in_the_message(http: httpx.Client) -> None:
    response = http.post(CHAT, json=chat(**{"k\n" + "é" * 50_000: 1}))

    assert_error(response, 400, "k\n" + "é" * 61 + "…")


def test_a_body_beyond_the_cap_is_refused_by_its_announced_length(http: httpx.Client) -> None:
    body = json.dumps(chat(user="u" * 2_000_000))

    response = http.post(CHAT, content=body, headers=JSON)

    assert_error(response, 413)
    assert response.headers["connection"] == "close"


def test_a_body_beyond_the_cap_is_refused_while_it_comes_in_chunks(http: httpx.Client) -> None:
    chunks = (b" " * 65536 for _ in range(32))

    response = http.post(CHAT, content=chunks, headers=JSON)

    assert_error(response, 413)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nope", "/v1/chat/completions/", "/tokenize/x"])
def test_an_unknown_path_has_the_error_shape(http: httpx.Client, path: str) -> None:
    assert_error(http.get(path), 404)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "OPTIONS, POST"),
        ("PUT", CHAT, "OPTIONS, POST"),
        ("DELETE", "/v1/models/fake", "GET, HEAD, OPTIONS"),
        ("POST", "/v1/models", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(
    http: httpx.Client, method: str, path: str, allow: str
) -> None:
    response = http.request(method, path)

    assert_error(response, 405)
    assert response.headers["allow"] == allow


def test_options_answers_without_allowing_other_origins(http: httpx.Client) -> None:
    headers = {"origin": "https://app.example", "access-control-request-method": "POST"}

    response = http.options(CHAT, headers=headers)

    assert response.status_code == 204
    assert response.headers["allow"] == "OPTIONS, POST"
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_head_has_the_headers_of_get_and_no_body(http: httpx.Client) -> None:
    got, head = http.get("/v1/models"), http.head("/v1/models")

    assert head.status_code == 200
    assert head.headers["content-length"] == got.headers["content-length"]
    assert head.content == b""


@pytest.mark.parametrize(
    ("model", "status", "retry_after"), [("busy", 429, "3"), ("gone", 503, "1")]
)
def test_a_failure_of_the_handler_has_its_status_and_says_when_to_retry(
    http: httpx.Client, model: str, status: int, retry_after: str
) -> None:
    response = http.post(CHAT, json=chat(model=model))

    assert_error(response, status)
    assert response.headers["retry-after"] == retry_after


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_a_bug_becomes_a_500_without_internals(http: httpx.Client, path: str) -> None:
    body = {"model": "crashes"} | ({"prompt": "a"} if path != CHAT else chat(model="crashes"))

    assert_error(http.post(path, json=body), 500)


def test_a_number_that_is_not_finite_is_a_500_and_not_null(http: httpx.Client) -> None:
    error = assert_error(http.post(CHAT, json=chat(model="nan")), 500)

    assert "logprob" in error["message"]


def test_a_model_id_may_have_slashes_and_escapes(http: httpx.Client) -> None:
    assert http.get("/v1/models/org/name%20x%2Fy").json()["id"] == "org/name x/y"


def test_a_model_that_is_not_served_is_named(http: httpx.Client) -> None:
    assert_error(http.get("/v1/models/missing"), 404, "model")


@pytest.mark.parametrize("given", ["abc-1.2_Z", "a" * 128])
@pytest.mark.parametrize("path", ["/v1/models", "/nope"])
def test_a_harmless_request_id_is_kept(http: httpx.Client, path: str, given: str) -> None:
    response = http.get(path, headers={"x-request-id": given})

    assert response.headers["x-request-id"] == given


def test_anthropics_clients_find_the_request_id_by_their_name(http: httpx.Client) -> None:
    headers = http.get("/v1/messages").headers

    assert headers["request-id"] == headers["x-request-id"]
    assert "request-id" not in http.get("/v1/models").headers


@pytest.mark.parametrize("given", ["", "a b", "a" * 129, "ü".encode("latin-1"), b"<script>"])
def test_any_other_request_id_is_replaced(http: httpx.Client, given: str | bytes) -> None:
    response = http.get("/v1/models", headers=[(b"x-request-id", given)])

    assert len(response.headers["x-request-id"]) == 32


@pytest.mark.parametrize("given", ["0", "-1", "soon", "nan", "inf", "1e9"])
def test_a_timeout_must_be_a_sensible_number(http: httpx.Client, given: str) -> None:
    response = http.post(CHAT, json=chat(), headers={"x-request-timeout-seconds": given})

    assert_error(response, 400, "x-request-timeout-seconds")


def test_the_handler_learns_id_trace_and_deadline(http: httpx.Client, handler: Any) -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    headers = {"x-request-id": "me", "traceparent": trace, "x-request-timeout-seconds": "60"}

    http.post(CHAT, json=chat(), headers=headers)

    context = handler.contexts[-1]
    assert (context.request_id, context.traceparent, context.tenant) == ("me", trace, "")
    assert context.deadline is not None


def test_the_openapi_document_is_served(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()

    assert document["openapi"] == "3.1.0"
    assert set(POST_ROUTES) <= set(document["paths"])


def test_failures_outside_the_generated_routes_have_the_same_shape(handler: Any) -> None:
    def broken(_request: Any) -> None:
        raise RuntimeError("password=hunter2")

    with served(
        build_app([inference_service(handler)], extra_routes=[Route("/broken", broken)])
    ) as client:
        assert_error(client.get("/broken"), 500)
