"""OpenAI's Python client: python example.py SERVER_URL EMBEDDING_SERVER_URL"""

from __future__ import annotations

import sys
from typing import Any, Literal

from examples import show
from openai import BadRequestError, OpenAI
from pydantic import BaseModel, Field

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused")
MODEL = "smollm2"
QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]
WANTS_BUS = [{"role": "user", "content": "When does the next bus leave the harbour?"}]
NEXT_BUS = {
    "type": "function",
    "function": {
        "name": "next_bus",
        "description": "When the next bus leaves a stop.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"stop": {"enum": ["harbour", "station"]}},
            "required": ["stop"],
            "additionalProperties": False,
        },
    },
}


class City(BaseModel):
    """A city; its fields are bounded, so that even a tiny model ends in time."""

    name: Literal["Tokyo", "Paris", "Rome"]
    country: Literal["Japan", "France", "Italy"]
    districts: int = Field(ge=1, le=99)


def chat() -> Any:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
    return answer.choices[0].message.content


def chat_stream() -> Any:
    chunks = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage = "", None
    for chunk in chunks:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    return {"text": text, "completion_tokens": usage.completion_tokens}


def parse() -> Any:
    answer = client.chat.completions.parse(
        model=MODEL, messages=QUESTION, temperature=0, response_format=City
    )
    return answer.choices[0].message.parsed.model_dump()


def parse_stream() -> Any:
    with client.chat.completions.stream(
        model=MODEL, messages=QUESTION, temperature=0, response_format=City
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    return {"parsed": final.choices[0].message.parsed.model_dump(), "events": sorted(kinds)}


def tools() -> Any:
    """The model calls, and answers from the call's result."""
    messages = list(WANTS_BUS)
    first = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        temperature=0,
        tools=[NEXT_BUS],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    message = first.choices[0].message
    (call,) = message.tool_calls
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "in 5 minutes"},
    ]
    second = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_tokens=24, tools=[NEXT_BUS]
    )
    return {
        "finish_reason": first.choices[0].finish_reason,
        "name": call.function.name,
        "arguments": call.function.arguments,
        "answer": second.choices[0].message.content,
    }


def tools_stream() -> Any:
    with client.chat.completions.stream(
        model=MODEL,
        messages=WANTS_BUS,
        temperature=0,
        tools=[NEXT_BUS],
        tool_choice="required",
        parallel_tool_calls=False,
    ) as stream:
        fragments = [e for e in stream if e.type == "tool_calls.function.arguments.delta"]
        choice = stream.get_final_completion().choices[0]
    (call,) = choice.message.tool_calls
    return {
        "finish_reason": choice.finish_reason,
        "name": call.function.name,
        "arguments": call.function.arguments,
        "parsed": call.function.parsed_arguments,
        "joined": "".join(fragment.arguments_delta for fragment in fragments),
    }


def tools_auto() -> Any:
    """Whether it calls is the model's choice; what it says is text or a call, never both broken."""
    answer = client.chat.completions.create(
        model=MODEL, messages=WANTS_BUS, temperature=0, tools=[NEXT_BUS], max_tokens=48
    )
    message = answer.choices[0].message
    return {
        "text": message.content,
        "calls": [call.function.name for call in message.tool_calls or []],
        "finish_reason": answer.choices[0].finish_reason,
    }


def responses() -> Any:
    answer = client.responses.create(
        model=MODEL, input="What is the capital of Japan?", temperature=0, store=False
    )
    return {"text": answer.output_text, "status": answer.status}


def responses_stream() -> Any:
    with client.responses.stream(
        model=MODEL, input="What is the capital of Japan?", temperature=0, store=False
    ) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    return {"text": text, "final": final.output_text, "status": final.status}


def responses_parse() -> Any:
    answer = client.responses.parse(
        model=MODEL, input=QUESTION, temperature=0, store=False, text_format=City
    )
    return answer.output_parsed.model_dump()


def responses_tools() -> Any:
    tool = {"type": "function", **NEXT_BUS["function"]}
    answer = client.responses.create(
        model=MODEL,
        input=WANTS_BUS,
        temperature=0,
        store=False,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    (call,) = (item for item in answer.output if item.type == "function_call")
    return {"name": call.name, "arguments": call.arguments}


def refused() -> Any:
    try:
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=9)
    except BadRequestError as error:
        return {"param": error.param, "type": error.type, "status": error.status_code}


def embeddings() -> Any:
    embedder = OpenAI(base_url=f"{sys.argv[2]}/v1", api_key="unused")
    texts = ["A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose."]
    # The client asks for base64 unless told otherwise, and decodes it.
    packed = embedder.embeddings.create(model="minilm", input=texts)
    plain = embedder.embeddings.create(model="minilm", input=texts, encoding_format="float")
    return {
        "packed": [item.embedding for item in packed.data],
        "plain": [item.embedding for item in plain.data],
        "prompt_tokens": packed.usage.prompt_tokens,
    }


if __name__ == "__main__":
    chats = (chat, chat_stream, parse, parse_stream, tools, tools_stream, tools_auto)
    show(
        *chats,
        responses,
        responses_stream,
        responses_parse,
        responses_tools,
        refused,
        embeddings,
    )
