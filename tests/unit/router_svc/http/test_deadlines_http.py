"""The adapter's own deadline, for whatever a handler waits for."""

import httpx
import pytest
from error_shape import assert_error
from fake_inference import FakeInference

CHAT = "/v1/chat/completions"
SOON = {"x-request-timeout-seconds": "0.1"}


def body(model: str, *, stream: bool = False) -> dict[str, object]:
    """A request that the fake handler treats as the model's name says."""
    messages = [{"role": "user", "content": "a"}]
    return {"model": model, "messages": messages, "stream": stream}


@pytest.mark.parametrize("stream", [False, True])
def test_a_handler_that_hangs_is_cancelled_and_answered_for(
    http: httpx.Client, handler: FakeInference, stream: bool
) -> None:
    handler.was_cancelled.clear()

    answer = http.post(CHAT, json=body("hangs", stream=stream), headers=SOON)

    assert assert_error(answer, 504)["type"] == "timeout_error"
    assert handler.was_cancelled.wait(10)


def test_a_stream_that_hangs_ends_with_the_error(
    http: httpx.Client, handler: FakeInference
) -> None:
    handler.was_closed.clear()

    answer = http.post(CHAT, json=body("hangs-later", stream=True), headers=SOON)

    assert answer.status_code == 200
    assert '"type":"timeout_error"' in answer.text.strip().split("\n\n")[-1]
    assert handler.was_closed.wait(10)


def test_an_answer_in_time_is_left_alone(http: httpx.Client) -> None:
    headers = {"x-request-timeout-seconds": "30"}

    answer = http.post(CHAT, json=body("fine"), headers=headers)

    assert answer.status_code == 200
