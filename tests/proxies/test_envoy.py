"""Envoy in front of two routers: streams pass at once, calls are spread, a cancel goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from octavo.inference.v1 import inference_pb2_grpc

from tests.clients.environment import client_python
from tests.clients.running import need
from tests.support.held_service import HeldService
from tests.support.running_proxy import Proxy, running_proxy
from tests.support.streams import arrivals, chat_request, grpc_texts, http_texts

STEPS = 12
ENDLESS = 8000
NUM_CALLS = 10
Texts = Callable[[Proxy, int], Iterator[str]]


@pytest.fixture(scope="module")
def envoy(held_routers: HeldService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    program = need(lambda: client_python("envoy")).with_name("envoy")
    directory = tmp_path_factory.mktemp("envoy")
    config = Path(__file__).with_name("envoy.yaml")
    command = [str(program), "-c", config.name, "--use-dynamic-base-id", "--log-level", "warn"]
    with running_proxy(command, config, held_routers, directory) as proxy:
        yield proxy


def over_http(proxy: Proxy, max_tokens: int) -> Iterator[str]:
    return http_texts(proxy.url, max_tokens)


def over_grpc(proxy: Proxy, max_tokens: int) -> Iterator[str]:
    return grpc_texts(proxy.grpc_target, max_tokens)


@pytest.mark.parametrize("texts", [over_http, over_grpc])
def test_a_stream_arrives_token_by_token(service: HeldService, envoy: Proxy, texts: Texts) -> None:
    arrived = arrivals(service.gate, texts(envoy, STEPS), STEPS)

    assert len(arrived) == STEPS


@pytest.mark.parametrize("texts", [over_http, over_grpc])
def test_a_cancel_reaches_the_engine(service: HeldService, envoy: Proxy, texts: Texts) -> None:
    router = service.routers[0]
    before = router.metric("vllm:generation_tokens_total")
    stream = texts(envoy, ENDLESS)
    next(text for text in stream if text)
    service.gate.hold()

    stream.close()
    ended = router.wait_until(lambda: not service.in_flight(), 30)
    service.gate.open()

    assert ended, "the routers still serve it"
    assert router.wait_until(service.idle, 30), "the engine still has its blocks"
    assert router.metric("vllm:generation_tokens_total") - before < ENDLESS


def test_calls_of_one_connection_are_spread_over_the_routers(
    service: HeldService, envoy: Proxy
) -> None:
    before = service.num_calls()

    with grpc.insecure_channel(envoy.grpc_target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        for _ in range(NUM_CALLS):
            stub.CreateChatCompletion(chat_request(max_tokens=1), timeout=30)

    calls = [after - earlier for after, earlier in zip(service.num_calls(), before, strict=True)]
    assert calls == [NUM_CALLS // 2] * 2


def test_an_error_passes_with_its_details(envoy: Proxy) -> None:
    wrong = chat_request(max_tokens=1)
    wrong.temperature = 9

    with grpc.insecure_channel(envoy.grpc_target) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.CreateChatCompletion(wrong, timeout=30)

    details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    violation = error_details_pb2.BadRequest()
    assert any(d.Unpack(violation) for d in status_pb2.Status.FromString(details).details)
    assert violation.field_violations[0].field == "temperature"
