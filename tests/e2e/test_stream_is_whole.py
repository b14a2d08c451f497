"""On every API, what a stream adds up to is the whole answer: all of it, for random requests.

A request's own prefix cache makes even its usage the same; batches of eight make its neighbours
others each time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from router_svc.api.messages.answer import complete_input
from tests.support.public_api import CHAT, COMPLETIONS, PublicApi, strict_json
from tests.support.response_fold import fold

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
NUM_REQUESTS = 24  # to each API
PARAMETERS = {
    "type": "object",
    "properties": {"stop": {"enum": ["harbour", "station"]}, "line": {"type": "integer"}},
    "required": ["stop"],
    "additionalProperties": False,
}
BUS = {"name": "next_bus", "description": "When the next bus leaves.", "parameters": PARAMETERS}
CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "ages": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["name", "ages"],
    "additionalProperties": False,
}
QUESTIONS = ("Tell me of a 🙂 city.", "When does the bus leave the harbour?", "Count: 1, 2,")
NAMED_SCHEMA = {"name": "city", "schema": CITY, "strict": True}
SAMPLING: dict[str, tuple[Any, ...]] = {
    "temperature": (0, 0.7, 1.3),
    "top_p": (0.8, 1),
    "seed": (1, 2, 3),
}
SHARED = SAMPLING | {
    "n": (1, 2, 3),
    "stop": ("e", [" a", "."], [","]),
    "return_token_ids": (True,),
    "prompt_logprobs": (1,),
    "presence_penalty": (0.5,),
    "logit_bias": ({28: 3}, {198: -100}),
    "include_stop_str_in_output": (True,),
    "bad_words": (["city"],),
    "response_format": (
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": NAMED_SCHEMA},
    ),
}
CHAT_OPTIONS = SHARED | {"logprobs": (True,), "parallel_tool_calls": (True, False)}
COMPLETION_OPTIONS = SHARED | {"logprobs": (0, 2), "echo": (True,)}
CALLS = (
    {},
    {"tool_choice": "auto"},
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "function": {"name": "next_bus"}}},
)
RESPONSE_CALLS = (*CALLS[:3], {"tool_choice": {"type": "function", "name": "next_bus"}})
MESSAGE_CALLS = ({}, {"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "next_bus"})
VOLATILE = {"id", "created", "created_at", "completed_at"}


def some(table: dict[str, tuple[Any, ...]], chance: random.Random) -> dict[str, Any]:
    """A third of the options, each with one of its values."""
    return {k: chance.choice(values) for k, values in table.items() if chance.random() < 0.33}


def chat_request(chance: random.Random) -> dict[str, Any]:
    body = some(CHAT_OPTIONS, chance)
    if chance.random() < 0.5:
        body.pop("response_format", None)
        body |= {"tools": [{"type": "function", "function": BUS}]} | chance.choice(CALLS)
    else:
        body.pop("parallel_tool_calls", None)
    messages = [{"role": "user", "content": chance.choice(QUESTIONS)}]
    return body | {"messages": messages, "max_tokens": chance.choice((1, 7, 24, 40))}


def completion_request(chance: random.Random) -> dict[str, Any]:
    prompt = chance.choice((*QUESTIONS, ["A:", "🙂 B"], [1, 4093, 198]))
    return some(COMPLETION_OPTIONS, chance) | {
        "prompt": prompt,
        "max_tokens": chance.choice((1, 7, 30)),
    }


def response_request(chance: random.Random) -> dict[str, Any]:
    body = some({"temperature": (0, 0.7, 1.3), "top_p": (0.8, 1)}, chance)
    wanted = chance.choice(("text", "logprobs", "schema", "tools"))
    if wanted == "tools":
        body |= {"tools": [{"type": "function", **BUS}]} | chance.choice(RESPONSE_CALLS)
    elif wanted == "schema":
        body["text"] = {"format": {"type": "json_schema", **NAMED_SCHEMA}}
    elif wanted == "logprobs":
        body |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    return body | {
        "input": chance.choice(QUESTIONS),
        "seed": chance.randrange(9),
        "max_output_tokens": chance.choice((1, 7, 24, 40)),
    }


def message_request(chance: random.Random) -> dict[str, Any]:
    """Anthropic's API has no seed, so that its answers are greedy here."""
    body = some({"stop_sequences": (["e"], [" a", "."]), "system": ("Be short.",)}, chance)
    if chance.random() < 0.5:
        tool = {"name": BUS["name"], "input_schema": PARAMETERS}
        choice = chance.choice(MESSAGE_CALLS)
        body |= {"tools": [tool]} | ({"tool_choice": choice} if choice else {})
    elif chance.random() < 0.3:
        body["output_config"] = {"format": {"type": "json_schema", "schema": CITY}}
    return body | {
        "messages": [{"role": "user", "content": chance.choice(QUESTIONS)}],
        "max_tokens": chance.choice((1, 7, 24, 40)),
        "temperature": 0,
    }


def events_of(api: PublicApi, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of a stream's named events."""
    with api.http.stream("POST", path, json=body | {"stream": True}) as response:
        raw = response.read().decode()
        assert response.status_code == 200, raw
    lines = [line for line in raw.split("\n") if line.startswith("data: ")]
    return [strict_json(line.removeprefix("data: ")) for line in lines]


def fold_message(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events of a stream add up to."""
    assert [event["type"] for event in events[:1]] == ["message_start"]
    message = events[0]["message"]
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                block, text = event["content_block"], ""
                message["content"].append(block)
            case "content_block_delta":
                text += event["delta"].get("text", event["delta"].get("partial_json", ""))
            case "content_block_stop" if block["type"] == "text":
                block["text"] = text
            case "content_block_stop":
                block["input"] = json.loads(complete_input(text))  # it may be cut short
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    assert events[-1]["type"] == "message_stop"
    return message


def settled(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without the names and times that are new each time."""
    items = "output" if "output" in answer else "content"
    new = {"id", "call_id"}
    kept = [{k: v for k, v in item.items() if k not in new} for item in answer[items]]
    return {k: v for k, v in answer.items() if k not in VOLATILE} | {items: kept}


def in_batches(ask: Callable[[dict[str, Any]], Any], bodies: list[dict[str, Any]]) -> list[Any]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, bodies))


@pytest.mark.parametrize(
    ("path", "make"), [(CHAT, chat_request), (COMPLETIONS, completion_request)]
)
def test_chunks_add_up_to_the_answer(
    api: PublicApi, path: str, make: Callable[[random.Random], dict[str, Any]]
) -> None:
    bodies = [
        make(random.Random(seed)) | {"request_id": f"r{seed}"} for seed in range(NUM_REQUESTS)
    ]
    for seed, body in enumerate(bodies):
        body.setdefault("seed", seed)

    wholes = in_batches(
        lambda body: api.whole(path, **body, cache_salt=f"whole {body['request_id']}"), bodies
    )
    streams = in_batches(
        lambda body: api.streamed(path, **body, cache_salt=f"stream {body['request_id']}"),
        bodies[::-1],
    )[::-1]

    for body, whole, streamed in zip(bodies, wholes, streams, strict=True):
        assert streamed == whole, body


@pytest.mark.parametrize(
    ("path", "make", "put_together"),
    [(RESPONSES, response_request, fold), (MESSAGES, message_request, fold_message)],
)
def test_events_add_up_to_the_answer(
    api: PublicApi,
    path: str,
    make: Callable[[random.Random], dict[str, Any]],
    put_together: Callable[[list[dict[str, Any]]], dict[str, Any]],
) -> None:
    bodies = [make(random.Random(seed)) for seed in range(NUM_REQUESTS)]
    in_batches(lambda body: api.ok(path, **body), bodies)  # now all of them are cached alike

    wholes = in_batches(lambda body: api.ok(path, **body), bodies)
    streams = in_batches(lambda body: put_together(events_of(api, path, body)), bodies[::-1])[::-1]

    for body, whole, streamed in zip(bodies, wholes, streams, strict=True):
        assert settled(streamed) == settled(whole), body
