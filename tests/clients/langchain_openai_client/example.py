"""LangChain's client of OpenAI's API: python example.py SERVER_URL EMBEDDING_SERVER_URL"""

from __future__ import annotations

import sys
from typing import Any, Literal

from examples import show
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

chat = ChatOpenAI(
    model="smollm2", base_url=f"{sys.argv[1]}/v1", api_key="unused", temperature=0, max_tokens=64
)
TEXTS = ["A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose."]
QUESTION = "What is the capital of Japan?"


class City(BaseModel):
    """A city."""

    name: Literal["Tokyo", "Paris", "Rome"]
    districts: int = Field(ge=1, le=99)


@tool
def next_bus(stop: Literal["harbour", "station"]) -> str:
    """When the next bus leaves a stop."""
    return f"in 5 minutes from {stop}"


def invoke() -> Any:
    answer = chat.invoke(QUESTION)
    return {"text": answer.content, "output_tokens": answer.usage_metadata["output_tokens"]}


def stream() -> Any:
    return "".join(chunk.content for chunk in chat.stream(QUESTION))


def bind_tools() -> Any:
    bound = chat.bind_tools([next_bus], tool_choice="required", parallel_tool_calls=False)
    (call,) = bound.invoke("When does the next bus leave the harbour?").tool_calls
    return {"name": call["name"], "args": call["args"], "result": next_bus.invoke(call["args"])}


def bind_tools_stream() -> Any:
    bound = chat.bind_tools([next_bus], tool_choice="required", parallel_tool_calls=False)
    whole = None
    for chunk in bound.stream("When does the next bus leave the harbour?"):
        whole = chunk if whole is None else whole + chunk
    (call,) = whole.tool_calls
    return {"name": call["name"], "args": call["args"]}


def structured() -> Any:
    return chat.with_structured_output(City).invoke(QUESTION).model_dump()


def structured_by_tool() -> Any:
    by_tool = chat.with_structured_output(City, method="function_calling")
    return by_tool.invoke(QUESTION).model_dump()


def embeddings() -> Any:
    # Without this setting the client sends the ids of OpenAI's own tokeniser instead of text.
    embedder = OpenAIEmbeddings(
        model="minilm",
        base_url=f"{sys.argv[2]}/v1",
        api_key="unused",
        check_embedding_ctx_length=False,
    )
    return embedder.embed_documents(TEXTS)


if __name__ == "__main__":
    show(
        invoke,
        stream,
        bind_tools,
        bind_tools_stream,
        structured,
        structured_by_tool,
        embeddings,
    )
