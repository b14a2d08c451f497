"""Anthropic's client: python example.py SERVER_URL"""

from __future__ import annotations

import sys
from typing import Any

from anthropic import Anthropic, BadRequestError
from examples import show

client = Anthropic(base_url=sys.argv[1], api_key="unused")
GREEDY = {"temperature": 0}  # the API still has it, the client's own arguments no longer
MODEL = "smollm2"
QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]
WANTS_BUS = [{"role": "user", "content": "When does the next bus leave the harbour?"}]
NEXT_BUS = {
    "name": "next_bus",
    "description": "When the next bus leaves a stop.",
    "input_schema": {
        "type": "object",
        "properties": {"stop": {"enum": ["harbour", "station"]}},
        "required": ["stop"],
        "additionalProperties": False,
    },
}


def create() -> Any:
    answer = client.messages.create(
        model=MODEL, max_tokens=64, messages=QUESTION, extra_body=GREEDY, system="You are helpful."
    )
    return {
        "text": answer.content[0].text,
        "stop_reason": answer.stop_reason,
        "input_tokens": answer.usage.input_tokens,
        "output_tokens": answer.usage.output_tokens,
    }


def stream() -> Any:
    with client.messages.stream(
        model=MODEL, max_tokens=64, messages=QUESTION, extra_body=GREEDY, system="You are helpful."
    ) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    return {
        "text": text,
        "final": final.content[0].text,
        "stop_reason": final.stop_reason,
        "output_tokens": final.usage.output_tokens,
    }


def tools() -> Any:
    """The model calls, and answers from the call's result."""
    messages = list(WANTS_BUS)
    first = client.messages.create(
        model=MODEL,
        max_tokens=64,
        messages=messages,
        extra_body=GREEDY,
        tools=[NEXT_BUS],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    (call,) = (block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "in 5 minutes"}
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(
        model=MODEL, max_tokens=24, messages=messages, extra_body=GREEDY, tools=[NEXT_BUS]
    )
    return {
        "stop_reason": first.stop_reason,
        "name": call.name,
        "input": call.input,
        "answer": [block.type for block in second.content],
    }


def tools_stream() -> Any:
    with client.messages.stream(
        model=MODEL,
        max_tokens=64,
        messages=WANTS_BUS,
        extra_body=GREEDY,
        tools=[NEXT_BUS],
        tool_choice={"type": "tool", "name": "next_bus"},
    ) as events:
        fragments = [e.partial_json for e in events if e.type == "input_json"]
        final = events.get_final_message()
    (call,) = (block for block in final.content if block.type == "tool_use")
    return {"input": call.input, "joined": "".join(fragments), "stop_reason": final.stop_reason}


def count_tokens() -> Any:
    return client.messages.count_tokens(
        model=MODEL, messages=QUESTION, system="You are helpful."
    ).input_tokens


def refused() -> Any:
    try:
        client.messages.create(
            model=MODEL, max_tokens=4, messages=QUESTION, extra_body={"temperature": 9}
        )
    except BadRequestError as error:
        return {"status": error.status_code, "body": error.body}


if __name__ == "__main__":
    show(create, stream, tools, tools_stream, count_tokens, refused)
