"""A router that is told to stop: what runs may finish, and who comes late is told so.

Here the engine takes its steps when the test lets it, so an answer lasts as long as it should.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import grpc
import httpx
import pytest
import torch
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support.held_router import JSON, STREAM, held_router, last_event
from tests.support.tiny_models import make_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("tiny"), dtype=torch.bfloat16)


def test_who_comes_late_is_told_when_to_come_again(model: Path, tmp_path: Path) -> None:
    with (
        held_router(model, tmp_path) as held,
        grpc.insecure_channel(held.server.grpc_target) as channel,
    ):
        stub = inference_pb2_grpc.InferenceStub(channel)
        request = pb.CreateCompletionRequest(prompt=pb.Prompt(text="a"), max_tokens=100)
        request.ignore_eos = True
        held.gate.hold()
        held.gate.let_pass(2)
        call = stub.StreamCompletion(request)
        next(call)
        stream = held.begin(held.connect())
        late, probing = held.connect(), held.connect()

        held.stop()

        late.request("POST", "/v1/completions", json.dumps(STREAM), JSON)
        refusal = late.getresponse()
        refused = json.loads(refusal.read())
        probing.request("GET", "/health")
        health = probing.getresponse()
        health.read()
        with pytest.raises(grpc.RpcError) as rpc_refusal:
            stub.CreateCompletion(request)
        held.gate.open()
        last, rest = last_event(stream), list(call)
        code = held.server.process.wait(60)

    assert refusal.status == 503
    assert int(refusal.headers["retry-after"]) >= 1
    assert refusal.headers["connection"] == "close"
    assert refused["error"]["message"] == "the server is shutting down"
    assert (health.status, health.headers["connection"]) == (503, "close")
    assert rpc_refusal.value.code() is grpc.StatusCode.UNAVAILABLE
    assert last == "[DONE]"
    assert rest[-1].choices[0].finish_reason == pb.FINISH_REASON_LENGTH
    assert code == 0


def test_an_answer_that_begins_in_the_drain_ends_its_connection(
    model: Path, tmp_path: Path
) -> None:
    with held_router(model, tmp_path) as held:
        held.gate.hold()
        connection = held.connect()
        body = json.dumps(STREAM | {"stream": False})
        connection.request("POST", "/v1/completions", body, JSON)
        metric = "octavo_router_requests_in_flight"
        assert held.server.wait_until(lambda: held.server.metric(metric) == 1)

        held.stop()
        held.gate.open()

        answer = connection.getresponse()
        usage = json.loads(answer.read())["usage"]
        code = held.server.process.wait(60)

    assert answer.headers["connection"] == "close"
    assert usage["completion_tokens"] == STREAM["max_tokens"]
    assert code == 0


@pytest.mark.parametrize("end", ["a second signal", "the shutdown timeout"])
def test_what_does_not_finish_ends_with_an_error_that_clients_see(
    model: Path, tmp_path: Path, end: str
) -> None:
    seconds = 600 if end == "a second signal" else 0.5
    with held_router(model, tmp_path, f"--shutdown-timeout={seconds}") as held:
        held.gate.hold()
        stream = held.begin(held.connect())

        held.stop()
        if end == "a second signal":
            held.server.process.send_signal(signal.SIGTERM)

        error = json.loads(last_event(stream))["error"]
        code = held.server.process.wait(60)

    assert error["message"] == "the server is shutting down"
    assert code == 0


def test_a_router_with_nothing_to_do_ends_at_once(model: Path, tmp_path: Path) -> None:
    with (
        held_router(model, tmp_path, "--shutdown-timeout=600") as held,
        httpx.Client(base_url=held.server.url, timeout=60) as client,
    ):
        assert client.get("/v1/models").status_code == 200  # and its connection stays

        held.server.process.send_signal(signal.SIGTERM)

        assert held.server.process.wait(60) == 0
