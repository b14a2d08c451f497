"""Streams of a held engine, read token by token."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import openai
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support.held_engine import Gate
from tests.support.held_service import MODEL

_SECONDS = 60.0  # after which a client that got nothing gives up
_QUESTION = "What is an octavo?"


def arrivals(gate: Gate, texts: Iterator[str], steps: int) -> list[str]:
    """Holds the engine; the text after each of so many steps, which pass once the last's has come.

    If something keeps text back, the client waits for it until it gives up, and raises.
    """
    gate.hold()
    arrived = []
    for _ in range(steps):
        gate.let_pass()
        arrived.append(next(text for text in texts if text))
    gate.open()
    return arrived


def http_texts(url: str, max_tokens: int) -> Iterator[str]:
    """The texts of a stream of OpenAI's client; the request is sent when the first is asked for."""
    messages = [{"role": "user", "content": _QUESTION}]
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="-", timeout=_SECONDS, max_retries=0) as client,
        client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=max_tokens, stream=True
        ) as stream,
    ):
        yield from _texts_of(stream)


def chat_request(max_tokens: int) -> pb.CreateChatCompletionRequest:
    """The same request over gRPC."""
    content = pb.MessageContent(text=_QUESTION)
    message = pb.ChatMessage(role=pb.ROLE_USER, content=content)
    return pb.CreateChatCompletionRequest(messages=[message], max_tokens=max_tokens)


def grpc_texts(target: str, max_tokens: int) -> Iterator[str]:
    """The same over gRPC."""
    with grpc.insecure_channel(target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        call = stub.StreamChatCompletion(chat_request(max_tokens), timeout=_SECONDS)
        try:
            yield from _texts_of(call)
        finally:
            call.cancel()


def _texts_of(chunks) -> Iterator[str]:
    for chunk in chunks:
        for choice in chunk.choices:
            yield choice.delta.content or ""
