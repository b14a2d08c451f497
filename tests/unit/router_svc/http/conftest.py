"""The fake handler behind real sockets, over HTTP and over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fake_inference import FakeInference
from grpc import aio
from octavo.inference.v1 import inference_pb2_grpc
from public_services import easy_services
from serving import served

from router_svc.gen.inference_service import inference_service
from router_svc.http.app import build_app
from router_svc.http.exchange import HttpSettings

SETTINGS = HttpSettings(body_cap=1024 * 1024, ping_seconds=0.05)


@pytest.fixture(scope="module")
def handler() -> FakeInference:
    """The handler behind `http`."""
    return FakeInference()


@pytest.fixture(scope="module")
def http(handler: FakeInference) -> Iterator[httpx.Client]:
    """A client of the whole application with the fake handler."""
    with served(build_app([inference_service(handler)], settings=SETTINGS)) as client:
        yield client


@pytest.fixture(scope="module")
def easy_http() -> Iterator[httpx.Client]:
    """A client of every public service, over handlers that answer anything at once."""
    with served(build_app(easy_services(), settings=SETTINGS)) as client:
        yield client


@pytest_asyncio.fixture
async def easy_channel() -> AsyncIterator[Any]:
    """A gRPC channel to the same."""
    server = aio.server()
    for service in easy_services():
        service.add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)
    await asyncio.sleep(0)


@pytest_asyncio.fixture
async def grpc_handler() -> FakeInference:
    """The handler behind `stub`."""
    return FakeInference()


@pytest_asyncio.fixture
async def stub(grpc_handler: FakeInference) -> AsyncIterator[Any]:
    """A gRPC client of the generated servicer."""
    server = aio.server()
    inference_service(grpc_handler).add_to_server(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield inference_pb2_grpc.InferenceStub(channel)
    await server.stop(None)
    await asyncio.sleep(0)
