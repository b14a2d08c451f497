"""The adapter's own deadline, for whatever a handler waits for."""

from typing import Any

import httpx
import pytest
from error_shape import assert_error
from fake_inference import FakeInference

CHAT = "/v1/chat/completions"
# The first is enough unless something held the machine up before the handler had begun.
SOON = [{"x-request-timeout-seconds": seconds} for seconds in ("0.1", "3", "60")]


def answer_that_was_begun(http: httpx.Client, handler: FakeInference, sent: object) -> Any:
    """The answer to a request whose time ended after its handler had begun to hang."""
    for flag in (handler.has_started, handler.was_cancelled, handler.was_closed):
        flag.clear()
    for headers in SOON:
        answer = http.post(CHAT, json=sent, headers=headers)
        if handler.has_started.is_set():
            break
    return answer


def body(model: str, *, stream: bool = False) -> dict[str, object]:
    """A request that the fake handler treats as the model's name says."""
    messages = [{"role": "user", "content": "a"}]
    return {"model": model, "messages": messages, "stream": stream}


@pytest.mark.parametrize("stream", [False, True])
def test_a_handler_that_hangs_is_cancelled_and_answered_for(
    http: httpx.Client, handler: FakeInference, stream: bool
) -> None:
    answer = answer_that_was_begun(http, handler, body("hangs", stream=stream))

    assert assert_error(answer, 504)["type"] == "timeout_error"
    assert handler.was_cancelled.wait(30)


def test_a_stream_that_hangs_ends_with_the_error(
    http: httpx.Client, handler: FakeInference
) -> None:
    answer = answer_that_was_begun(http, handler, body("hangs-later", stream=True))

    assert answer.status_code == 200
    assert '"type":"timeout_error"' in answer.text.strip().split("\n\n")[-1]
    assert handler.was_closed.wait(30)


def test_an_answer_in_time_is_left_alone(http: httpx.Client) -> None:
    headers = {"x-request-timeout-seconds": "30"}

    answer = http.post(CHAT, json=body("fine"), headers=headers)

    assert answer.status_code == 200
