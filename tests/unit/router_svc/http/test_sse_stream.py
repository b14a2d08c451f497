"""Server-sent events over a real socket: what is sent, when, and what stops it."""

import json
import logging
import socket
from typing import Any

import httpx
import pytest
from error_shape import assert_error
from fake_inference import FakeInference
from serving import served

from router_svc.gen.inference_service import inference_service
from router_svc.http.app import build_app

CHAT = "/v1/chat/completions"


def body(model: str = "fake", stream: bool = True) -> dict[str, Any]:
    """A conversation that asks for a stream."""
    return {"model": model, "messages": [{"role": "user", "content": "a"}], "stream": stream}


def events(text: str) -> list[str]:
    """The data of each event; comments are left out."""
    assert text.endswith("\n\n")
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert all("\n" not in block for block in blocks)
    return [block.removeprefix("data: ") for block in blocks if not block.startswith(":")]


def test_a_stream_is_data_lines_that_end_with_done(http: httpx.Client) -> None:
    response = http.post(CHAT, json=body())

    *chunks, last = events(response.text)
    assert last == "[DONE]"
    texts = [json.loads(chunk)["choices"][0]["delta"].get("content") for chunk in chunks[:-2]]
    assert texts == ["", "Hal", "lo"]


def test_a_stream_must_not_be_buffered_or_cached_on_its_way(http: httpx.Client) -> None:
    headers = http.post(CHAT, json=body()).headers

    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-request-id"]


def test_the_keys_of_a_chunk_come_in_the_fields_order(http: httpx.Client) -> None:
    first, *_, finish, usage, _done = events(http.post(CHAT, json=body()).text)

    assert first == (
        '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"fake",'
        '"choices":[{"index":0,"delta":{"role":"assistant","content":""},'
        '"logprobs":null,"finish_reason":null}]}'
    )
    assert json.loads(finish)["choices"][0]["finish_reason"] == "stop"
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


@pytest.mark.parametrize("stream", [False, None])
def test_no_stream_is_one_json_body(http: httpx.Client, stream: bool | None) -> None:
    response = http.post(CHAT, json=body(stream=stream))

    assert response.headers["content-type"] == "application/json"
    assert response.json()["object"] == "chat.completion"


@pytest.mark.parametrize(("model", "status"), [("busy", 429), ("gone", 503), ("crashes", 500)])
def test_an_error_before_the_first_item_is_a_status(
    http: httpx.Client, model: str, status: int
) -> None:
    assert_error(http.post(CHAT, json=body(model)), status)


def test_a_bad_field_of_a_stream_is_a_400(http: httpx.Client) -> None:
    assert_error(http.post(CHAT, json=body() | {"n": 0}), 400, "n")


@pytest.mark.parametrize(
    ("model", "message", "code"),
    [
        ("breaks", "the engine was lost", "engine_lost"),
        ("crashes-later", "The server failed on this request.", None),
    ],
)
def test_an_error_after_the_first_item_is_the_last_event(
    http: httpx.Client, model: str, message: str, code: str | None
) -> None:
    response = http.post(CHAT, json=body(model))

    assert response.status_code == 200
    first, last = events(response.text)
    assert json.loads(first)["choices"]
    assert json.loads(last) == {
        "error": {"message": message, "type": "server_error", "param": None, "code": code}
    }


def test_silence_is_filled_with_comments_that_clients_ignore(http: httpx.Client) -> None:
    response = http.post(CHAT, json=body("slow"))

    assert ": ping\n\n" in response.text
    assert not response.text.startswith(":")
    assert events(response.text)[-1] == "[DONE]"


def test_a_client_that_leaves_a_stream_closes_the_iterator() -> None:
    handler = FakeInference()
    with served(build_app([inference_service(handler)])) as client:
        with client.stream("POST", CHAT, json=body("hangs-later")) as response:
            next(response.iter_raw())
            assert handler.has_started.wait(30)

        assert handler.was_cancelled.wait(30)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_the_answer_cancels_the_handler(stream: bool) -> None:
    handler = FakeInference()
    with served(build_app([inference_service(handler)])) as client:
        content = json.dumps(body("hangs", stream=stream)).encode()
        host, port = client.base_url.host, client.base_url.port
        with socket.create_connection((host, port)) as raw:
            raw.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
            )
            raw.sendall(content)
            assert handler.has_started.wait(30)
            assert not handler.was_cancelled.is_set()

        assert handler.was_cancelled.wait(30)


def test_a_client_that_leaves_is_logged_by_its_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    handler = FakeInference()
    with served(build_app([inference_service(handler)])) as client:
        leaving = {"x-request-id": "leaver"}
        with client.stream("POST", CHAT, json=body("hangs-later"), headers=leaving) as response:
            next(response.iter_raw())
        assert handler.was_cancelled.wait(30)

    # The server has stopped, so everything is logged.
    assert "request leaver: 499, the client went away" in caplog.text


def test_a_client_that_does_not_read_stops_the_handler() -> None:
    handler = FakeInference()
    with (
        served(build_app([inference_service(handler)])) as client,
        client.stream("POST", CHAT, json=body("endless")) as response,
    ):
        next(response.iter_raw(1024))
        # The handler never waits, so unless it is held back this number has no bound; the other
        # requests are answered only if it is, and by then buffers and outbox are full.
        for _ in range(50):  # as many rounds as the buffers of this machine may take
            produced = handler.num_produced
            for _ in range(20):
                assert client.get("/v1/models").status_code == 200
            if handler.num_produced == produced:
                break

        assert handler.num_produced == produced


def test_a_client_that_leaves_between_items_closes_the_iterator() -> None:
    handler = FakeInference()
    with served(build_app([inference_service(handler)])) as client:
        with client.stream("POST", CHAT, json=body("endless")) as response:
            next(response.iter_raw(1024))

        assert handler.was_closed.wait(30)


def test_completions_stream_in_the_same_way(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json={"prompt": "a", "stream": True})

    first, last = events(response.text)
    assert json.loads(first)["choices"][0]["text"] == "a"
    assert last == "[DONE]"
