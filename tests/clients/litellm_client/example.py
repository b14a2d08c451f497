"""LiteLLM: python example.py SERVER_URL EMBEDDING_SERVER_URL"""

from __future__ import annotations

import sys
from typing import Any

import litellm
from examples import show

litellm.telemetry = False
SERVER = {"api_base": f"{sys.argv[1]}/v1", "api_key": "unused"}
MODEL = "hosted_vllm/smollm2"
TEXTS = ["A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose."]
QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]
NEXT_BUS = {
    "type": "function",
    "function": {
        "name": "next_bus",
        "description": "When the next bus leaves a stop.",
        "parameters": {
            "type": "object",
            "properties": {"stop": {"enum": ["harbour", "station"]}},
            "required": ["stop"],
            "additionalProperties": False,
        },
    },
}


def chat() -> Any:
    answer = litellm.completion(model=MODEL, messages=QUESTION, temperature=0, **SERVER)
    return answer.choices[0].message.content


def chat_as_openai() -> Any:
    answer = litellm.completion(model="openai/smollm2", messages=QUESTION, temperature=0, **SERVER)
    return answer.choices[0].message.content


def stream() -> Any:
    chunks = litellm.completion(
        model=MODEL, messages=QUESTION, temperature=0, stream=True, **SERVER
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def tools() -> Any:
    answer = litellm.completion(
        model=MODEL,
        messages=[{"role": "user", "content": "When does the next bus leave the harbour?"}],
        temperature=0,
        tools=[NEXT_BUS],
        tool_choice="required",
        parallel_tool_calls=False,
        **SERVER,
    )
    (call,) = answer.choices[0].message.tool_calls
    return {"name": call.function.name, "arguments": call.function.arguments}


def embeddings() -> Any:
    server = {"api_base": f"{sys.argv[2]}/v1", "api_key": "unused"}
    answer = litellm.embedding(model="hosted_vllm/minilm", input=TEXTS, **server)
    return [item["embedding"] for item in answer.data]


if __name__ == "__main__":
    show(chat, chat_as_openai, stream, tools, embeddings)
