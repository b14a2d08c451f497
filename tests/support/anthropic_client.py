"""Anthropic's own client, to which given answers are sent: what it makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anthropic
import httpx2
from octavo.inference.v1 import messages_pb2 as pb

from router_svc.errors import ApiError
from router_svc.gen.messages_encode import encode_stream_message_response
from router_svc.http.sse import send_events


class AnthropicClient:
    """The client of Anthropic's SDK over a transport that answers as it is told."""

    def __init__(self) -> None:
        transport = httpx2.MockTransport(lambda _: self._response)
        self._client = anthropic.Anthropic(
            api_key="unused", http_client=httpx2.Client(transport=transport)
        )

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What it makes of a whole answer's JSON."""
        self._response = httpx2.Response(200, json=answer)
        return _dumped(self._client.messages.create(model="m", max_tokens=5, messages=[]))

    def folded(self, events: Sequence[pb.StreamMessageResponse | ApiError]) -> dict[str, Any]:
        """What it makes of a stream."""
        headers = {"content-type": "text/event-stream"}
        body = asyncio.run(_body(events))
        self._response = httpx2.Response(200, headers=headers, content=body)
        with self._client.messages.stream(model="m", max_tokens=5, messages=[]) as stream:
            return _dumped(stream.get_final_message())

    def close(self) -> None:
        """Ends the client."""
        self._client.close()


def _dumped(message: anthropic.types.Message) -> dict[str, Any]:
    # The SDK's stream adds fields of null that a whole answer lacks.
    return message.model_dump(exclude_none=True)


async def _body(events: Sequence[pb.StreamMessageResponse | ApiError]) -> bytes:
    """What goes over the wire."""
    chunks = []

    async def send(message: Any) -> None:
        chunks.append(message.get("body", b""))

    async def items() -> AsyncIterator[pb.StreamMessageResponse]:
        for event in events:
            if isinstance(event, ApiError):
                raise event
            yield event

    await send_events(
        send,
        items(),
        encode_stream_message_response,
        end="",
        event_key="type",
        ping_seconds=60,
        request_id="r",
    )
    return b"".join(chunks)
