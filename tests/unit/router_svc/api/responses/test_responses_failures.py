"""A response whose engine fails: its events, its error, and what OpenAI's client makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import orjson
import pytest

from router_svc.api.responses.handler import Responses
from router_svc.call_context import CallContext
from router_svc.errors import ApiError, ErrorKind
from router_svc.gen.responses_decode import decode_create_response_request
from router_svc.gen.responses_encode import encode_response_event
from router_svc.gen.responses_service import responses_service
from router_svc.generation_types import EngineEvent, GenerationRequest
from router_svc.http.app import build_app
from router_svc.metrics import RouterMetrics
from router_svc.models import Models
from tests.support.response_fold import fold
from tests.support.written_answers import WritingEngine, written_model


class BreakingEngine(WritingEngine):
    """Fails after so many of its events."""

    def __init__(self, engine: WritingEngine, after: int) -> None:
        self._engine = engine
        self._after = after

    def submit(self, request: GenerationRequest) -> Any:
        return _Breaking(self._engine.submit(request), self._after)


class _Breaking:
    def __init__(self, stream: Any, after: int) -> None:
        self._stream = stream
        self._after = after

    def cancel(self, choice: int | None = None) -> None:
        self._stream.cancel(choice)

    async def __aiter__(self) -> AsyncIterator[EngineEvent]:
        count = 0
        async for event in self._stream:
            if count == self._after:
                raise ApiError(ErrorKind.UNAVAILABLE, "the engine was lost")
            yield event
            count += 1


@asynccontextmanager
async def client_of(handler: Responses) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's client of an application that serves the handler."""
    transport = httpx2.ASGITransport(build_app([responses_service(handler)]))
    async with (
        httpx2.AsyncClient(transport=transport) as http,
        openai.AsyncOpenAI(
            base_url="http://octavo/v1", api_key="unused", max_retries=0, http_client=http
        ) as client,
    ):
        yield client


@pytest.fixture
def breaking(smollm2_checkpoint: Path) -> Any:
    """Makes the handler of a model whose engine fails after so many events."""

    def make(after: int) -> Responses:
        model, engine = written_model(smollm2_checkpoint)
        engine.texts = ["Hello there, how are you?"]
        model.engine = BreakingEngine(engine, after)  # type: ignore[assignment]
        return Responses(Models([model]), RouterMetrics())

    return make


def stream_of(handler: Responses) -> AsyncIterator[Any]:
    request = decode_create_response_request({"input": "Hi"}, "")
    return handler.stream_response(request, CallContext("test"))


async def until_error(stream: AsyncIterator[Any]) -> tuple[list[dict[str, Any]], ApiError]:
    """The events before the error that must end the stream, and the error."""
    events = []
    try:
        async for event in stream:
            events.append(orjson.loads(orjson.dumps(encode_response_event(event))))  # noqa: PERF401 -- kept on an error
    except ApiError as error:
        return events, error
    pytest.fail("the stream ended without an error")


async def test_a_failure_under_way_is_an_event_and_an_error(breaking: Any) -> None:
    events, error = await until_error(stream_of(breaking(3)))

    assert error.kind is ErrorKind.UNAVAILABLE
    failed = fold(events)
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": "server_error", "message": "the engine was lost"}
    assert failed["output"][0]["content"][0]["text"] == "Hello there"
    assert failed["output"][0]["status"] == "in_progress"


async def test_a_failure_before_the_first_event_is_an_error_only(breaking: Any) -> None:
    events, error = await until_error(stream_of(breaking(0)))

    assert events == []
    assert error.kind is ErrorKind.UNAVAILABLE


async def test_openais_client_sees_the_failed_response_and_raises(breaking: Any) -> None:
    kinds = []

    async def read(client: openai.AsyncOpenAI) -> None:
        async for event in await client.responses.create(input="Hi", stream=True):
            kinds.append(event.type)  # noqa: PERF401 -- kept when the stream raises

    async with client_of(breaking(3)) as client:
        with pytest.raises(openai.APIError, match="the engine was lost"):
            await read(client)

    assert kinds[-2:] == ["response.output_text.delta", "response.failed"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_answer_is_a_status(breaking: Any, stream: bool) -> None:
    async with client_of(breaking(0)) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(input="Hi", stream=stream)

    assert caught.value.status_code == 503


async def test_a_whole_answer_that_fails_is_a_status(breaking: Any) -> None:
    async with client_of(breaking(3)) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(input="Hi")

    assert caught.value.status_code == 503
