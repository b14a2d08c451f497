"""Limits of tenants and of the process as clients meet them: HTTP and gRPC, all services."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from octavo.inference.v1 import (
    embeddings_pb2,
    embeddings_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    messages_pb2,
    messages_pb2_grpc,
    responses_pb2,
    responses_pb2_grpc,
)
from openai import AsyncOpenAI

from router_svc.admission.admission import Admission
from router_svc.auth.keyring import KeyRing
from router_svc.edge import Edge
from tests.support.scripted_generator import Edges, scripted_router

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "bbbb"}]  # four tokens
SERVICES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": USER, "max_tokens": 6}),
    ("/v1/completions", {"prompt": "bbbb", "max_tokens": 6}),
    ("/v1/responses", {"input": "bbbb", "max_output_tokens": 16}),
    ("/v1/messages", {"model": "encoder", "messages": USER, "max_tokens": 6}),
    ("/v1/embeddings", {"input": "bbbb"}),
    ("/v1/score", {"text_1": "bb", "text_2": "bb"}),
]
STREAMED = [(path, body | {"stream": True}) for path, body in SERVICES[:4]]

KEYS = """
tenants:
  free: [sk-free]
  few: {keys: [sk-few], limits: {requests_per_minute: 2}}
  small: {keys: [sk-small], limits: {tokens_per_minute: 1200}}
  tiny: {keys: [sk-tiny], limits: {tokens_per_minute: 12}}
  single: {keys: [sk-single], limits: {concurrent_requests: 1}}
  both: {keys: [sk-both], limits: {requests_per_minute: 100, tokens_per_minute: 1000}}
"""


def key(tenant: str) -> dict[str, str]:
    """The header of a tenant's key."""
    return {"authorization": f"Bearer sk-{tenant}"}


class Timeless(Edge):
    """Limits for which no time passes, however long a test takes: no bucket fills up again."""

    def admission(
        self, on_rejected: Callable[[str, str], None], _new_bucket: object = None
    ) -> Admission:
        ring = self.keyring
        return Admission(0, lambda: ring.limits, on_rejected=on_rejected, clock=lambda: 0)


class OnceRefused(Edge):
    """Limits for which time passes from the first refusal on."""

    def admission(
        self, on_rejected: Callable[[str, str], None], _new_bucket: object = None
    ) -> Admission:
        ring, refused_at = self.keyring, list[int]()

        def refuse(reason: str, tenant: str) -> None:
            refused_at.append(time.monotonic_ns())
            on_rejected(reason, tenant)

        def clock() -> int:
            return time.monotonic_ns() - refused_at[0] if refused_at else 0

        return Admission(0, lambda: ring.limits, on_rejected=refuse, clock=clock)


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[Edges]:
    """A router with the keys above, in front of an engine that answers at once."""
    path = tmp_path / "keys.yaml"
    path.write_text(KEYS)
    async with scripted_router(tmp_path, Timeless(KeyRing([], path))) as running:
        yield running


@pytest.fixture
async def http(router: Edges) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=router.url, timeout=60) as client:
        yield client


@pytest.fixture
async def channel(router: Edges) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(router.grpc_target) as opened:
        yield opened


def limits_of(response: httpx.Response) -> dict[str, str]:
    """The limit headers, by what follows x-ratelimit-."""
    prefix = "x-ratelimit-"
    return {n.removeprefix(prefix): v for n, v in response.headers.items() if n.startswith(prefix)}


@pytest.mark.parametrize(("path", "body"), SERVICES + STREAMED)
async def test_every_service_counts_its_requests(
    http: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    answers = [await http.post(path, json=body, headers=key("few")) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [limits_of(answer)["remaining-requests"] for answer in answers] == ["1", "0", "0"]
    refused = answers[2]
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert (refused.headers["retry-after-ms"], refused.headers["retry-after"]) == ("30000", "30")


@pytest.mark.parametrize(("path", "body"), SERVICES + STREAMED)
async def test_every_service_sets_tokens_aside_and_counts_those_it_used(
    http: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    before = await http.get("/v1/models", headers=key("both"))
    await http.post(path, json=body, headers=key("both"))
    after = await http.get("/v1/models", headers=key("both"))

    used = 4 + (0 if "embed" in path or "score" in path else body_limit(body))
    assert limits_of(before)["remaining-tokens"] == "1000"
    assert limits_of(after)["remaining-tokens"] == str(1000 - used)
    assert limits_of(after)["limit-tokens"] == "1000"
    assert limits_of(after)["reset-tokens"].endswith("s")


def body_limit(body: dict[str, Any]) -> int:
    """The longest answer that the body allows."""
    return body.get("max_tokens") or body["max_output_tokens"]


@pytest.mark.parametrize(("path", "body"), SERVICES[:4])
async def test_no_service_is_computed_beyond_the_tokens(
    router: Edges, http: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    larger = {name: 9 if name == "max_tokens" else value for name, value in body.items()}
    if "max_output_tokens" in larger:
        larger["max_output_tokens"] = 17

    refused = await http.post(path, json=larger, headers=key("tiny"))

    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["code"] == "tokens_above_limit"
    assert error["param"] in ("max_tokens", "max_output_tokens")
    assert router.engine.submitted == []


async def test_what_an_error_costs_is_given_back(router: Edges, http: httpx.AsyncClient) -> None:
    router.engine.be_full(1.0)

    refused = await http.post(CHAT, json=SERVICES[0][1], headers=key("both"))

    assert refused.status_code == 429
    assert limits_of(refused)["remaining-tokens"] == "1000"


async def test_a_stream_shows_what_is_set_aside_and_a_client_that_leaves_gets_it_back(
    router: Edges, http: httpx.AsyncClient
) -> None:
    router.engine.hang_after = 2
    body = {"messages": USER, "max_tokens": 500, "stream": True}

    async with http.stream("POST", CHAT, json=body, headers=key("both")) as response:
        lines, text = response.aiter_lines(), ""
        while len(text) < 2:  # what the router has not heard of is not counted
            line = await anext(lines)
            if line.startswith("data: "):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        during = int(limits_of(response)["remaining-tokens"])
    await asyncio.wait_for(router.engine.was_cancelled.wait(), 60)
    after = await http.get("/v1/models", headers=key("both"))

    assert during == 496
    assert int(limits_of(after)["remaining-tokens"]) == 1000 - 4 - 2


async def test_a_key_without_limits_sees_none(http: httpx.AsyncClient) -> None:
    answers = [await http.post(CHAT, json=SERVICES[0][1], headers=key("free")) for _ in range(5)]

    assert {answer.status_code for answer in answers} == {200}
    assert limits_of(answers[-1]) == {}


async def test_openais_client_waits_as_long_as_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(KEYS)
    edge = OnceRefused(KeyRing([], tmp_path / "keys.yaml"))
    async with scripted_router(tmp_path, edge) as router:
        base = f"{router.url}/v1"
        async with AsyncOpenAI(base_url=base, api_key="sk-small", max_retries=2) as client:
            create = client.chat.completions.with_raw_response.create
            first = await create(model="encoder", messages=USER, max_tokens=1190)  # type: ignore[arg-type]
            second = await create(model="encoder", messages=USER, max_tokens=16)  # type: ignore[arg-type]

    assert first.headers["x-ratelimit-remaining-tokens"] == "6"
    assert second.parse().choices[0].message.content == "a" * 16
    assert second.retries_taken == 1


async def test_requests_at_once_are_bounded_and_free_again_after_each_end(
    router: Edges, http: httpx.AsyncClient
) -> None:
    router.engine.hang_after = 1
    body = SERVICES[0][1] | {"stream": True}
    async with http.stream("POST", CHAT, json=body, headers=key("single")) as response:
        chunks = response.aiter_bytes()  # dropped, it would close the response
        await anext(chunks)
        refused = await http.post(CHAT, json=body, headers=key("single"))
    router.engine.hang_after = None

    # The server hears of the end a moment later.
    async with asyncio.timeout(60):
        while (  # noqa: ASYNC110 -- seen from outside only
            await http.post(CHAT, json=body, headers=key("single"))
        ).status_code != 200:
            await asyncio.sleep(0.05)

    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.headers["retry-after"] == "1"


async def test_rejections_are_counted_by_reason_and_tenant(http: httpx.AsyncClient) -> None:
    for _ in range(3):
        await http.post(CHAT, json=SERVICES[0][1], headers=key("few"))
    await http.post(CHAT, json={"messages": USER, "max_tokens": 8}, headers=key("tiny"))
    await http.post(CHAT, json={"messages": USER, "max_tokens": 8}, headers=key("tiny"))

    text = (await http.get("/metrics", headers=key("free"))).text

    counted = [line for line in text.splitlines() if line.startswith("octavo_router_rejections_t")]
    assert sorted(counted) == [
        'octavo_router_rejections_total{reason="requests_per_minute",tenant="few"} 1.0',
        'octavo_router_rejections_total{reason="tokens_per_minute",tenant="tiny"} 1.0',
    ]
    assert "octavo_router_time_to_route_seconds_count 3.0" in text


async def test_new_limits_of_the_file_bind_at_once_and_keep_what_was_used(
    router: Edges, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    await http.post(CHAT, json=SERVICES[0][1], headers=key("few"))
    changed = KEYS.replace("requests_per_minute: 2}", "requests_per_minute: 5}")
    (tmp_path / "keys.yaml").write_text(changed)

    async with asyncio.timeout(60):
        while True:
            seen = limits_of(await http.get("/v1/models", headers=key("few")))
            if seen["limit-requests"] == "5":
                break
            await asyncio.sleep(0.1)

    assert seen["remaining-requests"] == "4"


# -- the process ---------------------------------------------------------------------------------


async def test_a_full_process_refuses_before_it_reads_a_body(tmp_path: Path) -> None:
    async with scripted_router(tmp_path, Edge(max_requests_in_flight=1)) as router:
        router.engine.hang_after = 1
        async with httpx.AsyncClient(base_url=router.url, timeout=60) as http:
            body = SERVICES[0][1] | {"stream": True}
            async with http.stream("POST", CHAT, json=body) as response:
                chunks = response.aiter_bytes()  # dropped, it would close the response
                await anext(chunks)
                refused = await http.post(
                    CHAT, content=b"no JSON", headers={"content-type": "text/plain"}
                )
                probe = await http.get("/health")
                async with grpc.aio.insecure_channel(router.grpc_target) as channel:
                    error = await failure(chat_call(channel))
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "queue_full"
        assert refused.headers["retry-after"] == "1"
        assert probe.status_code == 200
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert detail(error, RetryInfo).retry_delay.ToMilliseconds() == 1000


# -- a full engine -------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "body"), SERVICES + STREAMED)
async def test_a_full_engine_is_a_429_with_its_own_time_to_come_back(
    router: Edges, http: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    router.engine.be_full(2.5)

    refused = await http.post(path, json=body, headers=key("free"))

    assert refused.status_code == 429
    assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("3", "2500")
    assert refused.json()["error"]["code"] == "queue_full"
    assert refused.json()["error"]["type"] == "rate_limit_error"


# -- gRPC ----------------------------------------------------------------------------------------


def metadata(tenant: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a tenant's key."""
    return (("authorization", f"Bearer sk-{tenant}"),)


def chat_call(channel: grpc.aio.Channel, tenant: str = "free", **options: Any) -> Any:
    message = inference_pb2.ChatMessage(
        role=inference_pb2.ROLE_USER, content=inference_pb2.MessageContent(text="bbbb")
    )
    request = inference_pb2.CreateChatCompletionRequest(messages=[message], max_tokens=6)
    stub = inference_pb2_grpc.InferenceStub(channel)
    return stub.CreateChatCompletion(request, metadata=metadata(tenant), **options)


def completion_call(channel: grpc.aio.Channel, tenant: str) -> Any:
    prompt = inference_pb2.Prompt(text="bbbb")
    request = inference_pb2.CreateCompletionRequest(prompt=prompt)
    return inference_pb2_grpc.InferenceStub(channel).CreateCompletion(
        request, metadata=metadata(tenant)
    )


def embedding_call(channel: grpc.aio.Channel, tenant: str) -> Any:
    given = inference_pb2.Prompt(text="bbbb")
    request = embeddings_pb2.CreateEmbeddingsRequest(input=given)
    return embeddings_pb2_grpc.EmbeddingsStub(channel).CreateEmbeddings(
        request, metadata=metadata(tenant)
    )


def message_call(channel: grpc.aio.Channel, tenant: str) -> Any:
    turn = messages_pb2.MessageTurn(
        role=inference_pb2.ROLE_USER, content=messages_pb2.MessageTurnContent(text="bbbb")
    )
    request = messages_pb2.CreateMessageRequest(model="encoder", max_tokens=6, messages=[turn])
    return messages_pb2_grpc.MessagesStub(channel).CreateMessage(request, metadata=metadata(tenant))


def response_call(channel: grpc.aio.Channel, tenant: str) -> Any:
    request = responses_pb2.CreateResponseRequest(input=responses_pb2.ResponseInput(text="bbbb"))
    return responses_pb2_grpc.ResponsesStub(channel).CreateResponse(
        request, metadata=metadata(tenant)
    )


CALLS = [chat_call, completion_call, embedding_call, message_call, response_call]


async def code_of(call: Any) -> grpc.StatusCode:
    """How it ends."""
    return await call.code()


async def failure(call: Any) -> grpc.aio.AioRpcError:
    """The error that a call must end with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def detail(error: grpc.aio.AioRpcError, kind: type) -> Any:
    """The detail of the kind in the error's status."""
    status: Status = rpc_status.from_call(error)  # type: ignore[arg-type]
    found = kind()
    assert any(each.Unpack(found) for each in status.details), status
    return found


@pytest.mark.parametrize("call", CALLS)
async def test_calls_count_and_are_refused_with_the_time_to_come_back(
    channel: grpc.aio.Channel, call: Any
) -> None:
    for _ in range(2):
        await call(channel, "few")

    error = await failure(call(channel, "few"))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(error, RetryInfo).retry_delay.ToMilliseconds() == 30_000
    assert detail(error, ErrorInfo).reason == "RATE_LIMIT_EXCEEDED"


@pytest.mark.parametrize("call", CALLS)
async def test_a_full_engine_exhausts_a_call_with_its_own_time_to_come_back(
    router: Edges, channel: grpc.aio.Channel, call: Any
) -> None:
    router.engine.be_full(2.5)

    error = await failure(call(channel, "free"))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(error, RetryInfo).retry_delay.ToMilliseconds() == 2500


async def test_a_call_is_told_its_limits_in_its_metadata(channel: grpc.aio.Channel) -> None:
    call = chat_call(channel, "both")

    shown = dict(await call.initial_metadata())
    await call

    assert shown["x-ratelimit-limit-requests"] == "100"
    assert shown["x-ratelimit-remaining-requests"] == "99"
    assert shown["x-ratelimit-limit-tokens"] == "1000"


async def test_http_and_grpc_draw_on_one_bucket(
    http: httpx.AsyncClient, channel: grpc.aio.Channel
) -> None:
    await chat_call(channel, "few")
    await http.post(CHAT, json=SERVICES[0][1], headers=key("few"))

    refused = await http.post(CHAT, json=SERVICES[0][1], headers=key("few"))
    error = await failure(chat_call(channel, "few"))

    assert refused.status_code == 429
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_list_of_models_costs_nothing(
    http: httpx.AsyncClient, channel: grpc.aio.Channel
) -> None:
    stub = inference_pb2_grpc.InferenceStub(channel)
    for _ in range(3):
        assert (await http.get("/v1/models", headers=key("few"))).status_code == 200
        await stub.ListModels(inference_pb2.ListModelsRequest(), metadata=metadata("few"))

    assert (await http.post(CHAT, json=SERVICES[0][1], headers=key("few"))).status_code == 200


async def test_a_call_that_ends_gives_its_place_back(
    router: Edges, channel: grpc.aio.Channel
) -> None:
    router.engine.hang_after = 0
    hanging = chat_call(channel, "single")
    async with asyncio.timeout(60):
        while not router.engine.submitted:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.005)
    refused = await failure(chat_call(channel, "single"))
    hanging.cancel()
    await asyncio.wait_for(router.engine.was_cancelled.wait(), 60)
    router.engine.hang_after = None

    # The server hears of the end a moment later.
    async with asyncio.timeout(60):
        while (  # noqa: ASYNC110 -- seen from outside only
            await code_of(chat_call(channel, "single")) is not grpc.StatusCode.OK
        ):
            await asyncio.sleep(0.05)

    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
