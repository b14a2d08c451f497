"""A stream is the whole answer in pieces: framed, ended once, and the same text."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.public_api import CHAT, COMPLETIONS, PublicApi, chat_body, strict_json
from tests.support.server import RunningServer

MULTI_BYTE = [{"role": "user", "content": "Repeat exactly: 🙂🎉 访问 ďábel"}]


def check_chat_stream(events: list[dict[str, Any]], n: int) -> None:
    """Role first, then text, then one finish reason for each choice; one identity throughout."""
    assert len({(e["id"], e["created"], e["model"], e["object"]) for e in events}) == 1
    state = ["new"] * n
    for choice in (choice for event in events for choice in event["choices"]):
        index, delta = choice["index"], choice["delta"]
        if state[index] == "new":
            assert delta == {"role": "assistant", "content": ""}
            state[index] = "running"
            continue
        assert state[index] == "running"
        assert "role" not in delta
        assert delta.get("content") != ""
        if choice["finish_reason"] is not None:
            state[index] = "finished"
    assert state == ["finished"] * n


async def test_every_choice_of_every_stream_finishes_exactly_once(server: RunningServer) -> None:
    bodies = [
        chat_body(
            f"Tell me about {topic}.",
            n=n,
            max_tokens=max_tokens,
            temperature=1,
            stop=stop,
            stream=True,
        )
        for topic, max_tokens in zip(
            ("rivers", "bread", "bridges", "clocks", "ink", "tea"), (1, 2, 3, 7, 16, 5), strict=True
        )
        for n in (1, 3)
        for stop in (None, [" a", "."])
    ]
    async with httpx.AsyncClient(base_url=server.url, timeout=100) as client:
        answers = await asyncio.gather(*(client.post(CHAT, json=body) for body in bodies))

    for body, answer in zip(bodies, answers, strict=True):
        frames = answer.text.split("\n\n")
        assert frames[-2:] == ["data: [DONE]", ""]
        check_chat_stream([strict_json(f.removeprefix("data: ")) for f in frames[:-2]], body["n"])


def test_usage_comes_once_at_the_end_and_only_on_demand(api: PublicApi) -> None:
    body = chat_body("Say hi", max_tokens=8)

    events = api.events(CHAT, **body, stream_options={"include_usage": True})

    assert [e for e in events if e.get("usage")] == [events[-1]]
    assert events[-1]["choices"] == []
    whole = api.whole(CHAT, **body)
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert events[-1]["usage"][count] == whole.usage[count]
    assert not any(e.get("usage") for e in api.events(CHAT, **body))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_usage_can_come_with_every_chunk_and_grows(api: PublicApi, path: str) -> None:
    question = chat_body("Count to ten.") if path == CHAT else {"prompt": "1, 2,", "temperature": 0}

    events = api.events(
        path, **question, max_tokens=9, stream_options={"continuous_usage_stats": True}
    )

    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[-1] == 9


def test_text_held_back_for_a_stop_string_is_neither_lost_nor_sent_empty(api: PublicApi) -> None:
    body = chat_body("Say one sentence", max_tokens=32, stop=["ZZZZZZZZ"])

    events = api.events(CHAT, **body)

    check_chat_stream(events, n=1)
    joined = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
    assert joined == api.whole(CHAT, **body).text


@pytest.mark.parametrize(
    "options",
    [
        {"logprobs": True, "top_logprobs": 3},
        {"n": 3, "temperature": 1, "seed": 11},
        {"n": 3, "temperature": 1, "seed": 4, "stop": [" a", "e"], "logprobs": True},
        {"stop": ["in", "cat"], "include_stop_str_in_output": True},
        {"prompt_logprobs": 2, "n": 2},
        {"skip_special_tokens": False},
        {"messages": MULTI_BYTE, "logprobs": True, "max_tokens": 48},
    ],
    ids=["logprobs", "n", "n-stop-logprobs", "stop-included", "prompt", "special", "multi-byte"],
)
def test_a_chat_stream_is_the_whole_answer(api: PublicApi, options: dict) -> None:
    body = chat_body("Name a fruit.", max_tokens=24, return_token_ids=True) | options

    whole, streamed = api.whole(CHAT, **body), api.streamed(CHAT, **body)

    assert streamed.choices == whole.choices
    assert streamed.usage["completion_tokens"] == whole.usage["completion_tokens"]
    assert "\ufffd" not in "".join(choice.text for choice in whole.choices)


@pytest.mark.parametrize(
    "options",
    [
        {"logprobs": 3, "n": 2, "temperature": 1, "seed": 3},
        {"echo": True, "logprobs": 2},
        {"echo": True, "logprobs": 2, "prompt_logprobs": 1, "n": 2},
        {"echo": True, "max_tokens": 0, "logprobs": 1},
        {"prompt": ["A:", "B is", "One two"], "n": 2, "stop": ["e"], "logprobs": 0},
        {"prompt": "🙂🎉🙂🎉🙂🎉🙂", "logprobs": 1, "echo": True},
        {"prompt": [[1, 2, 3], [4093, 198]], "echo": True, "prompt_logprobs": 3},
    ],
    ids=["n", "echo", "echo-n", "echo-only", "prompts", "multi-byte", "ids"],
)
def test_a_completion_stream_is_the_whole_answer(api: PublicApi, options: dict) -> None:
    body = {"prompt": "Once there was", "temperature": 0, "max_tokens": 16} | options
    body["return_token_ids"] = True

    whole, streamed = api.whole(COMPLETIONS, **body), api.streamed(COMPLETIONS, **body)

    assert streamed.choices == whole.choices
    assert streamed.usage["completion_tokens"] == whole.usage["completion_tokens"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 9},
        {"logit_bias": {"70001": 1}},
        {"stop_token_ids": [70001]},
        {"messages": [{"role": "user", "content": "word " * 3000}]},
    ],
    ids=["field", "bias", "stop-token", "length"],
)
def test_what_is_refused_before_the_first_token_is_a_status(api: PublicApi, wrong: dict) -> None:
    error = api.refused(CHAT, chat_body("hi", stream=True) | wrong)

    assert error["param"].split(".")[0].split("[")[0] in wrong


def test_a_client_that_leaves_several_prompts_frees_the_engine(server: RunningServer) -> None:
    body = {"prompt": ["A story:"] * 3, "ignore_eos": True, "max_tokens": 1500}

    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}{COMPLETIONS}", json=body, timeout=0.5)

    assert server.wait_until(server.idle)
