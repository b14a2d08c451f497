"""Several router processes behind one HTTP and one gRPC port."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import psutil
import pytest
import torch
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support.held_router import JSON, STREAM, HeldRouter, held_router, last_event
from tests.support.tiny_models import make_tiny

WORKERS = 3
# So many connections reach each of three workers but for one time in 10^7.
MANY = 48


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("tiny"), dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def held(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldRouter]:
    directory = tmp_path_factory.mktemp("workers")
    with held_router(model, directory, f"--workers={WORKERS}") as running:
        yield running


@pytest.fixture
def fresh(model: Path, tmp_path: Path) -> Iterator[HeldRouter]:
    """For tests that end it."""
    with held_router(model, tmp_path, f"--workers={WORKERS}") as running:
        yield running


def _until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds; the test's own timeout is the limit."""
    while not condition():
        time.sleep(0.05)


def _workers(held: HeldRouter) -> list[psutil.Process]:
    return psutil.Process(held.server.process.pid).children()


def _listening(held: HeldRouter) -> list[psutil.Process]:
    def listens(worker: psutil.Process) -> bool:
        return any(each.status == "LISTEN" for each in worker.net_connections("tcp"))

    return [worker for worker in _workers(held) if listens(worker)]


def _served_by(worker: psutil.Process, port: int) -> set[int]:
    """The clients' ends of a worker's connections on a port."""
    return {
        each.raddr.port
        for each in worker.net_connections("tcp")
        if each.status == "ESTABLISHED" and each.laddr.port == port
    }


def _complete(held: HeldRouter) -> dict:
    """A request over a connection of its own."""
    body = STREAM | {"stream": False, "max_tokens": 1}
    answer = httpx.post(f"{held.server.url}/v1/completions", json=body, timeout=60)
    return answer.raise_for_status().json()


def _own_port(connection: http.client.HTTPConnection) -> int:
    return connection.sock.getsockname()[1]


def test_connections_spread_and_metrics_are_of_all(held: HeldRouter) -> None:
    connections = [held.connect() for _ in range(MANY)]
    ours = {_own_port(connection) for connection in connections}
    shares = [_served_by(worker, held.port) & ours for worker in _workers(held)]

    before = held.server.metric("octavo_router_requests_total")
    for connection in connections:
        body = json.dumps(STREAM | {"stream": False, "max_tokens": 1})
        connection.request("POST", "/v1/completions", body, JSON)
        assert json.loads(connection.getresponse().read())["usage"]["completion_tokens"] == 1

    counts = [held.server.metric("octavo_router_requests_total") for _ in range(8)]
    ready = held.server.metric("octavo_router_engine_ready")
    assert len(shares) == WORKERS
    assert all(shares)
    assert set.union(*shares) == ours
    assert counts == [before + MANY] * 8
    assert ready == WORKERS


def test_grpc_connections_spread_too(held: HeldRouter) -> None:
    port = int(held.server.grpc_target.rpartition(":")[2])
    request = pb.CreateCompletionRequest(prompt=pb.Prompt(text="a"), max_tokens=1)
    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(held.server.grpc_target, own) for _ in range(MANY)]

    for channel in channels:
        stub = inference_pb2_grpc.InferenceStub(channel)
        assert stub.CreateCompletion(request).usage.completion_tokens == 1

    assert all(_served_by(worker, port) for worker in _workers(held))
    for channel in channels:
        channel.close()


def test_a_killed_worker_takes_its_own_streams_and_no_others(held: HeldRouter) -> None:
    held.gate.hold()
    connections = [held.connect() for _ in range(MANY // 3)]
    ports = {connection: _own_port(connection) for connection in connections}
    streams = {connection: held.begin(connection) for connection in connections[:12]}
    victim = max(_workers(held), key=lambda worker: len(_served_by(worker, held.port)))
    its = _served_by(victim, held.port)
    in_flight = held.server.metric("octavo_router_requests_in_flight")

    victim.kill()
    victim.wait()
    held.gate.open()
    before = held.server.metric("octavo_router_requests_total")
    answers = [_complete(held) for _ in range(20)]
    _until(lambda: len(_listening(held)) == WORKERS)

    for connection, stream in streams.items():
        if ports[connection] in its:
            with pytest.raises((ConnectionError, http.client.IncompleteRead)):
                stream.read()
        else:
            assert last_event(stream) == "[DONE]"
    assert in_flight == len(streams)
    assert all(answer["usage"]["completion_tokens"] == 1 for answer in answers)
    assert held.server.metric("octavo_router_requests_total") >= before + len(answers)
    _until(lambda: held.server.metric("octavo_router_requests_in_flight") == 0)
    assert _complete(held)["usage"]["completion_tokens"] == 1
    assert "exited with code -9; starting another one" in held.server.log.read_text()


def test_a_taken_port_is_a_clear_error(model: Path, held: HeldRouter) -> None:
    command = [sys.executable, "-m", "router_svc", "router", str(model), "--workers=2"]
    ports = [f"--port={held.port}", "--grpc-port=0"]

    second = subprocess.run([*command, *ports], capture_output=True, text=True, check=False)

    assert second.returncode == 1
    complaint = f"cannot listen on 127.0.0.1:{held.port} for HTTP: Address already in use"
    assert complaint in second.stderr
    assert "Traceback" not in second.stderr


def test_a_signal_drains_all_workers_and_frees_the_ports(fresh: HeldRouter) -> None:
    fresh.gate.hold()
    streams = [fresh.begin(fresh.connect()) for _ in range(8)]

    fresh.stop()
    fresh.gate.open()
    lasts = [last_event(stream) for stream in streams]
    code = fresh.server.process.wait(60)

    assert lasts == ["[DONE]"] * len(streams)
    assert code == 0
    for target in (fresh.port, int(fresh.server.grpc_target.rpartition(":")[2])):
        with socket.create_server(("127.0.0.1", target)):
            pass


def test_a_second_signal_ends_all_streams_with_an_error(fresh: HeldRouter) -> None:
    fresh.gate.hold()
    streams = [fresh.begin(fresh.connect()) for _ in range(8)]
    fresh.stop()

    fresh.server.process.send_signal(signal.SIGTERM)

    errors = [json.loads(last_event(stream))["error"]["message"] for stream in streams]
    assert errors == ["the server is shutting down"] * len(streams)
    assert fresh.server.process.wait(60) == 0


def test_no_worker_outlives_its_parent(fresh: HeldRouter) -> None:
    workers = _workers(fresh)

    fresh.server.process.kill()

    _, alive = psutil.wait_procs(workers, 60)
    assert len(workers) == WORKERS
    assert alive == []


def test_a_tenants_requests_of_a_minute_are_counted_over_all_workers(
    model: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.yaml"
    limits = {"requests_per_minute": 3}  # so the next one comes after twenty seconds
    keys.write_text(json.dumps({"tenants": {"acme": {"keys": ["sk-acme"], "limits": limits}}}))
    flags = ("--workers=2", f"--api-key-file={keys}", "--metrics-open")
    with held_router(model, tmp_path, *flags) as held:
        connections = [held.connect() for _ in range(24)]
        body = json.dumps(STREAM | {"stream": False, "max_tokens": 1})
        for connection in connections:
            headers = JSON | {"authorization": "Bearer sk-acme"}
            connection.request("POST", "/v1/completions", body, headers)

        answers = [connection.getresponse() for connection in connections]
        refused = [answer for answer in answers if answer.status == 429]

        assert all(_served_by(worker, held.port) for worker in _workers(held))
        assert len(refused) == len(answers) - 3
        assert {answer.headers["x-ratelimit-remaining-requests"] for answer in refused} == {"0"}
        assert [answer.status for answer in answers].count(200) == 3
