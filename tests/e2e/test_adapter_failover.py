"""Real engines with real adapters behind one router: loaded over HTTP, and one of them killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
import psutil
import pytest
from octavo.engine.v1 import admin_pb2, admin_pb2_grpc

from engine_svc.loader.open_model import open_model
from tests.support.held_engine import Gate
from tests.support.held_service import running_process
from tests.support.peft_files import make_adapter
from tests.support.server import READY_SECONDS, RunningServer, free_port
from tests.support.tiny_models import make_tiny

ASKED = {
    "model": "sql",
    "prompt": "hello world",
    "max_tokens": 600,
    "seed": 7,
    "ignore_eos": True,
    "logprobs": 1,
    "return_token_ids": True,
}


@dataclass
class Fleet:
    """A router, and the sockets and processes of its two engines."""

    server: RunningServer
    http: httpx.Client
    targets: list[str]
    engines: list[psutil.Process]
    gate: Gate  # of the first engine's steps, open

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The answer to a request that succeeds."""
        response = self.http.post(path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def load_on(self, number: int) -> None:
        """Has one engine load the adapter, without the router."""
        with grpc.insecure_channel(self.targets[number]) as channel:
            wish = admin_pb2.LoadAdapterRequest(name="sql", source="sql")
            admin_pb2_grpc.AdminStub(channel).LoadAdapter(wish)

    def having(self) -> list[str]:
        """The engines that the router would send a request for the adapter to."""
        response = self.http.post("/explain_route", json={"model": "sql", "prompt": "a"})
        candidates = response.json().get("candidates", ())
        return sorted(each["engine"] for each in candidates if each["may_serve"])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two engines that have no adapter yet, and a directory with one."""
    directory = tmp_path_factory.mktemp("adapters")
    model = make_tiny("llama", directory / "model", max_position_embeddings=1024)
    make_adapter(directory / "files" / "sql", open_model(model).spec, std=0.2)
    targets = [f"unix:{directory}/{i}.sock" for i in range(2)]
    flags = ["--dtype", "bfloat16", "--enable-lora", "--lora-dir", str(directory / "files")]
    port, grpc_port = free_port(), free_port()
    with ExitStack() as stack:
        engines, gate = [], Gate(directory / "gate", create=True)
        gate.open()
        programs = (["tests.support.gated_engine", str(directory / "gate")], ["engine_svc"])
        for i, (target, program) in enumerate(zip(targets, programs, strict=True)):
            command = [sys.executable, "-m", *program, str(model), "--listen", target, *flags]
            process = stack.enter_context(running_process(command, directory / f"{i}.log"))
            engines.append(psutil.Process(process.pid))
        command = [sys.executable, "-m", "router_svc", "router", str(model), "--port", str(port)]
        command += ["--grpc-port", str(grpc_port), "--allow-lora-updates"]
        command += [f"--engines={target}" for target in targets]
        log = directory / "router.log"
        router = stack.enter_context(running_process(command, log))
        url = f"http://127.0.0.1:{port}"
        server = RunningServer(url, f"127.0.0.1:{grpc_port}", router, log)
        http = stack.enter_context(httpx.Client(base_url=url, timeout=60))
        found = Fleet(server, http, targets, engines, gate)
        ready = "octavo_router_engine_ready"
        assert server.wait_until(lambda: _sum(found, ready) == 2, READY_SECONDS), log.read_text()
        yield found


def _sum(fleet: Fleet, metric: str) -> float:
    for engine in fleet.engines:
        assert engine.status() != psutil.STATUS_ZOMBIE
    try:
        return fleet.server.metric(metric)
    except httpx.TransportError:
        return 0


def test_an_adapter_comes_by_http_answers_through_the_death_of_its_engine_and_goes(
    fleet: Fleet,
) -> None:
    outside = {"lora_name": "sql", "lora_path": "../model"}
    refused = fleet.http.post("/v1/load_lora_adapter", json=outside)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "lora_path")
    assert f"{fleet.targets[1]}: must be an adapter's directory" in refused.text
    loaded = fleet.post("/v1/load_lora_adapter", lora_name="sql", lora_path="sql")
    assert loaded["engines"] == fleet.targets
    base, sql = fleet.http.get("/v1/models").json()["data"]
    assert (sql["id"], sql["parent"]) == ("sql", base["id"])
    assert sql["root"].endswith("/files/sql")
    undisturbed = fleet.post("/v1/completions", **ASKED)["choices"][0]
    plain = fleet.post("/v1/completions", **ASKED | {"model": base["id"]})["choices"][0]
    assert undisturbed["token_ids"] != plain["token_ids"]
    fleet.post("/v1/unload_lora_adapter", lora_name="sql")
    assert fleet.http.post("/v1/completions", json=ASKED).status_code == 404

    fleet.load_on(0)
    assert fleet.server.wait_until(lambda: fleet.having() == fleet.targets[:1])
    fleet.gate.hold()
    fleet.gate.let_pass(5)
    token_ids, text, logprobs = [], "", []
    stream = ASKED | {"stream": True}
    with fleet.http.stream("POST", "/v1/completions", json=stream) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: {"))
        for number, line in enumerate(lines):
            choice = json.loads(line.removeprefix("data: "))["choices"][0]
            if number == 0:
                fleet.load_on(1)
                assert fleet.server.wait_until(lambda: fleet.having() == fleet.targets)
                fleet.engines[0].kill()
            token_ids += choice.get("token_ids", [])
            text += choice["text"]
            logprobs += choice["logprobs"]["token_logprobs"] if choice["logprobs"] else []

    assert fleet.server.metric("octavo_router_failovers_total") == 1
    assert token_ids == undisturbed["token_ids"]
    assert text == undisturbed["text"]
    assert logprobs == undisturbed["logprobs"]["token_logprobs"]
