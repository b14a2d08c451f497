"""With keys in use nothing answers without one but the probes, over HTTP and gRPC."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio
from error_shape import assert_error
from fake_inference import FakeInference
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc
from serving import served
from starlette.applications import Starlette
from starlette.routing import Route

from router_svc.auth.http import PROBES
from router_svc.auth.keyring import KeyRing
from router_svc.auth.rpc import KeyInterceptor
from router_svc.call_context import CallContext
from router_svc.edge import Edge
from router_svc.fleet.fleet import Fleet
from router_svc.gen.inference_service import inference_service
from router_svc.http.app import build_app
from router_svc.http.cors import CorsRules
from router_svc.page.files import Page
from router_svc.served_model import ServedModel
from router_svc.server import Router, RouterConfig

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]
KEY = {"authorization": "Bearer sk-good"}
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "a"}]}
PAGE = "https://app.example"
WEB_PAGE = Page.load()


def keyring() -> KeyRing:
    """Keys of one tenant."""
    return KeyRing(["sk-good"])


@pytest_asyncio.fixture(params=[None, WEB_PAGE], ids=["without the page", "with the page"])
async def whole_app(request: pytest.FixtureRequest) -> AsyncIterator[Starlette]:
    """The application that the router serves, with every service and every route for operators."""
    edge = Edge(keyring(), PROBES | request.param.paths if request.param else PROBES)
    config = RouterConfig("127.0.0.1", 0, 0, 1 << 20, 1.0, edge, page=request.param)
    # No call gets as far as the model's text.
    model = ServedModel(Fleet(""), None, None, None)  # type: ignore[arg-type] -- see above
    router = Router(config, [model])
    await router.start()
    yield router.app
    await router.close()


async def test_no_route_answers_without_a_key_but_the_probes_and_the_pages_files(
    whole_app: Starlette,
) -> None:
    paths = [route.path for route in whole_app.routes if isinstance(route, Route)]
    asked = [path.replace("{model:path}", "m").replace("{name}", "nope.js") for path in paths]
    files = WEB_PAGE.paths if "/" in paths else set()
    asked += [
        *WEB_PAGE.paths,
        "/page",
        "/page/",
        "/page/%2e%2e/metrics",
        "/nope",
        "/docs",
        "/health/",
        "//health",
        "/health/x",
        "/HEALTH",
    ]
    # The list would be of no use if it missed what is served.
    assert {CHAT, "/metrics", "/openapi.json", "/version", "/load", "/v1/models"} <= set(asked)

    transport = httpx.ASGITransport(whole_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        for path in asked:
            for method in METHODS:
                # Whole, as "//health" alone would be another host.
                response = await client.request(method, f"http://octavo{path}")
                if path in PROBES and method in ("GET", "HEAD"):
                    assert response.status_code in (200, 503), (method, path)
                elif path in files and method in ("GET", "HEAD"):
                    assert response.status_code == 200, (method, path)
                else:
                    assert response.status_code == 401, (method, path)
                    assert response.headers["www-authenticate"] == "Bearer"
                    assert response.headers["x-request-id"]


@pytest.fixture(scope="module")
def handler() -> FakeInference:
    return FakeInference()


@pytest.fixture(scope="module")
def guarded(handler: FakeInference) -> Iterator[httpx.Client]:
    """A client of an application with keys that pages of one origin may call."""
    edge = Edge(keyring())
    services = [inference_service(handler)]
    with served(
        build_app(services, middleware=edge.middleware(), cors=CorsRules([PAGE]))
    ) as client:
        yield client


@pytest.mark.parametrize(
    "headers", [KEY, {"x-api-key": "sk-good"}, {"Authorization": "BEARER sk-good"}]
)
def test_a_key_lets_in_and_names_the_tenant(
    guarded: httpx.Client, handler: FakeInference, headers: dict[str, str]
) -> None:
    assert guarded.post(CHAT, json=BODY, headers=headers).status_code == 200
    assert handler.contexts[-1].tenant == "default"


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer sk-secret-guess"}, {"x-api-key": "sk-secret-guess"}]
)
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/nope"])
def test_a_refusal_has_the_error_shape_and_no_key(
    guarded: httpx.Client,
    caplog: pytest.LogCaptureFixture,
    path: str,
    headers: dict[str, str],
) -> None:
    caplog.set_level(logging.DEBUG)

    response = guarded.post(path, json=BODY, headers=headers)

    error = assert_error(response, 401)
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
    assert "secret" not in response.text
    # httpx logs its own requests, without headers.
    assert "secret" not in caplog.text


def test_a_key_is_asked_for_before_the_body_is_read(guarded: httpx.Client) -> None:
    response = guarded.post(CHAT, content=b"{", headers={"content-type": "text/plain"})

    assert_error(response, 401)


def preflight(client: httpx.Client, origin: str) -> httpx.Response:
    """What a browser asks before it sends a request from a page of the origin."""
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
    }
    return client.options(CHAT, headers=headers)


def test_a_page_of_a_named_origin_may_ask_without_a_key(guarded: httpx.Client) -> None:
    response = preflight(guarded, PAGE)

    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    assert "POST" in response.headers["access-control-allow-methods"]
    assert "x-stainless-os" in response.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in response.headers
    assert response.headers["x-request-id"]


def test_but_its_request_needs_the_key_and_may_read_the_answer(guarded: httpx.Client) -> None:
    refused = guarded.post(CHAT, json=BODY, headers={"origin": PAGE})
    answered = guarded.post(CHAT, json=BODY, headers={"origin": PAGE} | KEY)
    wrong = guarded.post(CHAT, json=BODY | {"n": 0}, headers={"origin": PAGE} | KEY)

    for response, status in ((refused, 401), (answered, 200), (wrong, 400)):
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in response.headers["access-control-expose-headers"]
        assert "Origin" in response.headers["vary"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://app.example.evil.com"])
def test_a_page_of_another_origin_is_allowed_nothing(guarded: httpx.Client, origin: str) -> None:
    asked = preflight(guarded, origin)
    sent = guarded.post(CHAT, json=BODY, headers={"origin": origin} | KEY)

    assert_error(asked, 400)
    for response in (asked, sent):
        assert "access-control-allow-origin" not in response.headers


def test_options_that_are_no_preflight_need_a_key(guarded: httpx.Client) -> None:
    assert_error(guarded.options(CHAT), 401)


# -- gRPC --------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def channel() -> AsyncIterator[Any]:
    """A channel to a server with keys; the handler hangs on the channel for the test to see."""
    served_by = FakeInference()
    server = grpc.aio.server(interceptors=[KeyInterceptor(keyring())])
    inference_service(served_by).add_to_server(server)
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened, served_by
    await server.stop(None)
    await asyncio.sleep(0)


REQUEST = pb.CreateChatCompletionRequest(
    messages=[pb.ChatMessage(role=pb.ROLE_USER, content=pb.MessageContent(text="a"))]
)


@pytest.mark.parametrize(
    "method",
    [
        *(f"/octavo.inference.v1.Inference/{m.name}" for m in
          pb.DESCRIPTOR.services_by_name["Inference"].methods),
        "/octavo.inference.v1.Inference/Nope",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/grpc.channelz.v1.Channelz/GetServers",
        "/x/y",
    ],
)  # fmt: skip
async def test_no_method_answers_without_a_key(channel: Any, method: str) -> None:
    call = channel[0].unary_unary(method)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", metadata=(("authorization", "Bearer sk-secret-guess"),))

    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "secret" not in caught.value.details()


@pytest.mark.parametrize(
    "metadata", [("authorization", "Bearer sk-good"), ("x-api-key", "sk-good")]
)
async def test_a_key_in_the_metadata_lets_in_and_names_the_tenant(
    channel: Any, metadata: tuple[str, str]
) -> None:
    opened, served_by = channel
    stub = inference_pb2_grpc.InferenceStub(opened)

    await stub.CreateChatCompletion(REQUEST, metadata=(metadata,))
    async for _ in stub.StreamChatCompletion(REQUEST, metadata=(metadata,)):
        pass

    assert [context.tenant for context in served_by.contexts] == ["default", "default"]


async def test_the_health_of_the_server_is_no_secret(channel: Any) -> None:
    stub = health_pb2_grpc.HealthStub(channel[0])

    answer = await stub.Check(health_pb2.HealthCheckRequest())

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


# -- prefix caches -----------------------------------------------------------------------------


def test_tenants_never_have_a_salt_in_common() -> None:
    wanted = ["", "a", "b", "default", "default\0a"]
    tenants = ["acme", "beta", "default"]

    salts = {CallContext("r", tenant=each).salt(salt) for each in tenants for salt in wanted}

    assert len(salts) == len(tenants) * len(wanted)
    assert not salts & set(wanted)


def test_without_tenants_the_salt_is_the_requests_own() -> None:
    assert CallContext("r").salt("a") == "a"
    assert CallContext("r").salt("") == ""
