"""A server with API keys, from outside: who is let in, what tenants share, what else listens."""

from __future__ import annotations

import os
import pickle
import socket
import socketserver
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import grpc
import httpx
import openai
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support.awkward_model import make_awkward
from tests.support.processes import engine_of
from tests.support.public_api import CHAT, COMPLETIONS, MODEL, chat_body
from tests.support.server import RunningServer, running_server

ACME, BETA, SPARE, FLAG = "sk-acme-5f2b", "sk-beta-91c0", "sk-beta-spare-77", "sk-flag-3d1e"
PAGE = "https://app.example"
PROBES = ("/health", "/ready", "/live", "/ping")
GUARDED = ("/metrics", "/version", "/load", "/openapi.json", "/v1/models", "/nowhere")


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of keys that the server watches."""
    path = tmp_path_factory.mktemp("keys") / "keys.yaml"
    _write(path, [BETA, SPARE])
    return path


def _write(path: Path, of_beta: list[str]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(f"tenants:\n  acme: [{ACME}]\n  beta: [{', '.join(of_beta)}]\n")
    fresh.replace(path)


@pytest.fixture(scope="module")
def guarded(key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that wants a key."""
    directory = tmp_path_factory.mktemp("guarded")
    model = make_awkward(directory / "model")
    args = ["--served-model-name", MODEL, "--api-key-file", str(key_file)]
    args += ["--allowed-origins", PAGE]
    os.environ["OCTAVO_API_KEY"] = FLAG
    try:
        with running_server(model, *args, log=directory / "log") as server:
            yield server
    finally:
        del os.environ["OCTAVO_API_KEY"]


def client(server: RunningServer, key: str = "") -> httpx.Client:
    """A client with this key, or none."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=server.url, headers=headers, timeout=60)


def test_everything_but_the_probes_needs_a_key(guarded: RunningServer) -> None:
    with client(guarded) as nobody, client(guarded, ACME) as somebody:
        for path in PROBES:
            assert nobody.get(path).status_code == 200
        paths = somebody.get("/openapi.json").json()["paths"]
        for path in GUARDED:
            refused = nobody.get(path)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert refused.headers["www-authenticate"] == "Bearer"
            assert somebody.get(path).status_code == (404 if path == "/nowhere" else 200)
        for path, operations in paths.items():
            for verb in operations:
                assert nobody.request(verb, path.replace("{model}", "m")).status_code == 401


@pytest.mark.parametrize("headers", [{"authorization": f"Bearer {FLAG}"}, {"x-api-key": ACME}])
def test_a_key_of_a_flag_or_a_file_lets_in(guarded: RunningServer, headers: dict[str, str]) -> None:
    with client(guarded) as http:
        body = chat_body("hi", max_tokens=1)
        assert http.post(CHAT, json=body, headers=headers).status_code == 200


def test_every_method_over_grpc_needs_a_key(guarded: RunningServer) -> None:
    metadata = (("authorization", f"Bearer {ACME}"),)
    with grpc.insecure_channel(guarded.grpc_target) as channel:
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        (listed,) = reflection.ServerReflectionInfo(iter([ask]), metadata=metadata)
        services = [each.name for each in listed.list_services_response.service]
        ours = [name for name in services if name.startswith("octavo.")]
        assert "octavo.inference.v1.Inference" in ours

        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == 1
        for name in ours:
            for method in _methods_of(channel, name, metadata):
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(f"/{name}/{method}")(b"")
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as caught:
            next(reflection.ServerReflectionInfo(iter([ask])))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def _methods_of(channel: grpc.Channel, service: str, metadata: Any) -> list[str]:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    ask = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    (answer,) = stub.ServerReflectionInfo(iter([ask]), metadata=metadata)
    file = FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
    (found,) = [each for each in file.service if service.endswith(f".{each.name}")]
    return [method.name for method in found.method]


def test_the_usual_clients_send_their_key_and_know_a_refusal(guarded: RunningServer) -> None:
    turns = [{"role": "user", "content": "hi"}]
    for key, let_in in ((ACME, True), ("sk-wrong", False)):
        with (
            openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=key) as theirs,
            anthropic.Anthropic(base_url=guarded.url, api_key=key) as others,
        ):
            calls = [
                partial(theirs.chat.completions.create, model=MODEL, messages=turns, max_tokens=1),
                partial(others.messages.create, model=MODEL, messages=turns, max_tokens=1),
            ]
            if let_in:
                assert all(call().id for call in calls)
                continue
            with pytest.raises(openai.AuthenticationError) as refused:
                calls[0]()
            assert refused.value.code == "invalid_api_key"
            assert refused.value.request_id
            with pytest.raises(anthropic.AuthenticationError):
                calls[1]()


# -- tenants -----------------------------------------------------------------------------------


def cached(server: RunningServer, key: str, prompt: list[int], **options: Any) -> int:
    """How much of the prompt's computation an answer took from the prefix cache, in tokens."""
    body = {"prompt": prompt, "max_tokens": 1} | options
    with client(server, key) as http:
        usage = http.post(COMPLETIONS, json=body).raise_for_status().json()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("salts", [("", ""), ("shared", "shared"), ("", "shared")])
def test_a_tenant_finds_its_own_prompts_in_the_cache_and_no_others(
    guarded: RunningServer, salts: tuple[str, str]
) -> None:
    prompt = [10 + len(salts[0]) + 2 * len(salts[1]), *range(20, 100)]
    own, other = ({"cache_salt": salt} if salt else {} for salt in salts)

    assert cached(guarded, ACME, prompt, **own) == 0
    assert cached(guarded, ACME, prompt, **own) >= 64
    for key in (BETA, FLAG):
        assert cached(guarded, key, prompt, **other) == 0
    # Two keys of one tenant are one tenant.
    assert cached(guarded, SPARE, prompt, **other) >= 64


def test_tenants_are_apart_over_grpc_too(guarded: RunningServer) -> None:
    request = pb.CreateCompletionRequest(
        prompt=pb.Prompt(token_ids=pb.TokenIds(items=range(150, 230))), max_tokens=1
    )

    def cached_for(key: str) -> int:
        with grpc.insecure_channel(guarded.grpc_target) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            answer = stub.CreateCompletion(request, metadata=(("x-api-key", key),))
        return answer.usage.prompt_tokens_details.cached_tokens

    assert cached_for(ACME) == 0
    assert cached_for(ACME) >= 64
    assert cached_for(BETA) == 0
    assert cached(guarded, ACME, list(range(150, 230))) >= 64


def test_keys_change_without_a_restart(guarded: RunningServer, key_file: Path) -> None:
    def status(key: str) -> int:
        with client(guarded, key) as http:
            return http.get("/v1/models").status_code

    _write(key_file, [BETA, "sk-beta-new-08"])

    assert guarded.wait_until(lambda: status("sk-beta-new-08") == 200)
    assert (status(BETA), status(ACME), status(SPARE)) == (200, 200, 401)
    key_file.write_text("tenants: [")
    assert guarded.wait_until(lambda: "the API keys stay as they were" in guarded.log.read_text())
    assert (status(BETA), status(SPARE)) == (200, 401)
    _write(key_file, [BETA, SPARE])
    assert guarded.wait_until(lambda: status(SPARE) == 200)


def test_a_page_of_a_named_origin_may_ask_before_it_has_a_key(guarded: RunningServer) -> None:
    asks = {"access-control-request-method": "POST"}
    with client(guarded) as http:
        named = http.options(CHAT, headers=asks | {"origin": PAGE})
        other = http.options(CHAT, headers=asks | {"origin": "https://evil.example"})
        sent = http.post(CHAT, json=chat_body("hi"), headers={"origin": PAGE})

    assert (named.status_code, sent.status_code) == (200, 401)
    assert named.headers["access-control-allow-origin"] == PAGE
    assert sent.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-origin" not in other.headers


# -- what else could be reached ----------------------------------------------------------------


class _Canary(socketserver.BaseRequestHandler):
    """Remembers that somebody came."""

    def handle(self) -> None:
        self.server.visits += 1  # type: ignore[attr-defined]


@pytest.fixture
def canary() -> Iterator[socketserver.TCPServer]:
    """A server that nobody must connect to."""
    server = socketserver.TCPServer(("127.0.0.1", 0), _Canary)
    server.visits = 0  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def _bodies(url: str) -> list[tuple[str, dict[str, Any]]]:
    """Requests that name an address wherever one could be named."""

    def parts(*content: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": list(content)}]}

    def formed(schema: dict[str, Any]) -> dict[str, Any]:
        json_schema = {"name": "a", "schema": schema}
        return chat_body("a", response_format={"type": "json_schema", "json_schema": json_schema})

    source = {"type": "url", "url": url}
    item = {"role": "user", "content": [{"type": "input_image", "image_url": url}]}
    return [
        (CHAT, parts({"type": "image_url", "image_url": {"url": url}})),
        (CHAT, parts({"type": "video_url", "video_url": {"url": url}})),
        (CHAT, parts({"type": "file", "file": {"file_data": url}})),
        (CHAT, formed({"$ref": url})),
        (CHAT, formed({"$schema": url, "$id": url, "properties": {"a": {"$ref": "b.json"}}})),
        (CHAT, chat_body("a", chat_template=url)),
        (CHAT, chat_body("a", tokenizer=url)),
        (CHAT, chat_body("a", model=url)),
        ("/v1/messages", {"max_tokens": 1} | parts({"type": "image", "source": source})),
        ("/v1/messages", {"max_tokens": 1} | parts({"type": "document", "source": source})),
        ("/v1/responses", {"input": [item]}),
        ("/v1/responses", {"input": "a", "tools": [{"type": "mcp", "server_url": url}]}),
    ]


def test_no_request_makes_the_server_connect_to_anything(
    guarded: RunningServer, canary: socketserver.TCPServer
) -> None:
    port = canary.server_address[1]
    with client(guarded, ACME) as http:
        for url in (f"http://127.0.0.1:{port}/latest", f"data:image/png;base64,{'A' * 100_000}"):
            for path, body in _bodies(url):
                response = http.post(path, json=body)
                assert response.status_code in (400, 404), (path, body, response.text)
                assert list(response.json()["error"]) == ["message", "type", "param", "code"]

    assert canary.visits == 0  # type: ignore[attr-defined]


class _Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._path}",)


def _listening(process: psutil.Process) -> set[tuple[str, int]]:
    found = [one.laddr for one in process.net_connections("inet") if one.status == "LISTEN"]
    # gRPC listens on IPv4 addresses through IPv6 sockets.
    return {(address.ip.removeprefix("::ffff:"), address.port) for address in found}


def test_only_the_two_ports_listen_and_nothing_there_runs_what_it_is_sent(
    guarded: RunningServer, tmp_path: Path
) -> None:
    router = psutil.Process(guarded.process.pid)
    engine = engine_of(guarded)
    ports = {int(guarded.url.rpartition(":")[2]), int(guarded.grpc_target.rpartition(":")[2])}
    assert _listening(router) == {("127.0.0.1", port) for port in ports}
    assert _listening(engine) == set()
    (unix,) = {one.laddr for one in engine.net_connections("unix") if one.laddr}
    assert Path(unix).stat().st_mode & 0o077 == 0 or Path(unix).parent.stat().st_mode & 0o077 == 0

    canary = tmp_path / "canary"
    payloads = (pickle.dumps(_Bomb(canary)), os.urandom(4096), b"\x00\xff\xff\xff\xff" + b"a" * 99)
    addresses = [("127.0.0.1", port) for port in ports] + [unix]
    for address in addresses:
        for payload in (*payloads, (1 << 30).to_bytes(4, "big") + b"\x80\x04."):
            family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
            with socket.socket(family) as raw:
                raw.settimeout(1)
                raw.connect(address)
                raw.sendall(payload)
                raw.shutdown(socket.SHUT_WR)
                try:
                    while raw.recv(4096):
                        pass
                except (TimeoutError, ConnectionResetError):
                    pass

    assert not canary.exists()
    assert engine_of(guarded).pid == engine.pid
    with client(guarded, ACME) as http:
        assert http.post(CHAT, json=chat_body("hi", max_tokens=1)).status_code == 200


# Last, as it looks at what all the others have left behind.
def test_no_key_is_in_a_log_a_metric_or_the_engines_environment(guarded: RunningServer) -> None:
    with client(guarded, "sk-wrong-guess-40") as wrong:
        assert wrong.get("/v1/models").status_code == 401
    with client(guarded, ACME) as http:
        metrics = http.get("/metrics").text

    environment = engine_of(guarded).environ()
    for text in (guarded.log.read_text(), metrics, str(environment)):
        for key in (ACME, BETA, SPARE, FLAG, "sk-wrong-guess-40"):
            assert key not in text
