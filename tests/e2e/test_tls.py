"""TLS as users meet it: on the router's ports, and between router and engine."""

from __future__ import annotations

import contextlib
import functools
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import openai
import pytest
import torch
from octavo.inference.v1 import inference_pb2 as pb
from octavo.inference.v1 import inference_pb2_grpc

from tests.support import plain_http
from tests.support.certificates import Authority, Identity
from tests.support.server import free_port
from tests.support.tiny_models import make_tiny

COMPLETION = {"prompt": "a", "max_tokens": 3, "ignore_eos": True}


def _until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds; the test's own timeout is the limit."""
    while not condition():
        time.sleep(0.05)


@contextmanager
def _command(log: Path, *args: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "router_svc", *map(str, args)], stdout=sink, stderr=sink
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class Secure:
    """A server whose clients need certificates."""

    authority: Authority
    serving: Identity
    client: Identity
    port: int
    grpc_port: int
    log: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def http(self, shows: Identity | None, trusts: Authority | None = None) -> httpx.Client:
        """A client."""
        context = ssl.create_default_context(cafile=(trusts or self.authority).certfile)
        if shows is not None:
            context.load_cert_chain(shows.certfile, shows.keyfile)
        return httpx.Client(base_url=self.url, verify=context, timeout=60)

    def channel(self, shows: Identity | None, trusts: Authority | None = None) -> grpc.Channel:
        """A gRPC client."""
        key, chain = (shows.keyfile, shows.certfile) if shows else (None, None)
        credentials = grpc.ssl_channel_credentials(
            (trusts or self.authority).certfile.read_bytes(),
            key and key.read_bytes(),
            chain and chain.read_bytes(),
        )
        return grpc.secure_channel(f"localhost:{self.grpc_port}", credentials)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("llama", tmp_path_factory.mktemp("tiny"), dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def secure(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory)
    serving, client = authority.issue("server"), authority.issue("client")
    server = Secure(authority, serving, client, free_port(), free_port(), directory / "log")
    args = (
        "serve", tiny, "--served-model-name=m",
        f"--port={server.port}", f"--grpc-port={server.grpc_port}",
        f"--ssl-certfile={serving.certfile}", f"--ssl-keyfile={serving.keyfile}",
        f"--ssl-ca-certs={authority.certfile}",
    )  # fmt: skip
    with _command(server.log, *args) as process, server.http(client) as http:

        def ready() -> bool:
            assert process.poll() is None, server.log.read_text()
            with contextlib.suppress(httpx.TransportError):
                return http.get("/health").status_code == 200
            return False

        _until(ready)
        yield server


def _complete(channel: grpc.Channel) -> pb.CreateCompletionResponse:
    request = pb.CreateCompletionRequest(prompt=pb.Prompt(text="a"), max_tokens=3, ignore_eos=True)
    return inference_pb2_grpc.InferenceStub(channel).CreateCompletion(request, timeout=60)


def test_the_openai_sdk_is_served_over_https(secure: Secure) -> None:
    with secure.http(secure.client) as transport:
        sdk = openai.OpenAI(base_url=f"{secure.url}/v1", api_key="none", http_client=transport)

        ask = functools.partial(
            sdk.completions.create, model="m", prompt="a", max_tokens=3, temperature=0
        )
        whole, chunks = ask(), list(ask(stream=True))

    assert whole.choices[0].text == "".join(chunk.choices[0].text for chunk in chunks)


def test_grpc_is_served_over_tls(secure: Secure) -> None:
    with secure.channel(secure.client) as channel:
        assert _complete(channel).usage.completion_tokens == 3


def test_who_shows_no_certificate_or_a_strangers_is_not_served(
    secure: Secure, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path).issue("stranger")

    for shows in (None, stranger):
        with secure.http(shows) as http, pytest.raises(httpx.TransportError):
            http.get("/health")
        with secure.channel(shows) as channel, pytest.raises(grpc.RpcError) as refusal:
            _complete(channel)
        assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


def test_nobody_is_served_without_tls(secure: Secure) -> None:
    with pytest.raises(httpx.TransportError):
        plain_http.get(f"http://localhost:{secure.port}/health")
    with (
        grpc.insecure_channel(f"localhost:{secure.grpc_port}") as channel,
        pytest.raises(grpc.RpcError) as refusal,
    ):
        _complete(channel)
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


def test_the_start_up_lines_say_https(secure: Secure) -> None:
    assert f"HTTP  https://127.0.0.1:{secure.port}/v1" in secure.log.read_text()


def test_a_renewed_certificate_is_shown_without_a_restart_and_streams_go_on(
    secure: Secure, tmp_path: Path
) -> None:
    successor = Authority(tmp_path, "successor")
    body = COMPLETION | {"max_tokens": 100, "stream": True}
    with (
        secure.http(secure.client) as http,
        http.stream("POST", "/v1/completions", json=body) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        keys = [each.read_bytes() for each in (secure.serving.keyfile, secure.serving.certfile)]

        successor.issue("renewed").move_to(secure.serving)

        with secure.http(secure.client, trusts=successor) as renewed:
            assert renewed.get("/health").status_code == 200
        with secure.channel(secure.client, trusts=successor) as channel:
            assert _complete(channel).usage.completion_tokens == 3
        with secure.http(secure.client) as former, pytest.raises(httpx.ConnectError):
            former.get("/health")
        assert [line for line in lines if line][-1] == "data: [DONE]"
    secure.serving.keyfile.write_bytes(keys[0])
    secure.serving.certfile.write_bytes(keys[1])
    with secure.http(secure.client) as http:
        assert http.get("/health").status_code == 200


def test_router_and_engine_show_each_other_certificates(tiny: Path, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    of_engine, of_router = authority.issue("engine"), other.issue("router")
    port, target = free_port(), f"localhost:{free_port()}"
    engine = (
        "engine", tiny, f"--listen={target}",
        f"--ssl-certfile={of_engine.certfile}", f"--ssl-keyfile={of_engine.keyfile}",
        f"--ssl-ca-certs={authority.certfile}",
    )  # fmt: skip
    router = (
        "router", tiny, f"--engines={target}", f"--port={port}", f"--grpc-port={free_port()}",
        f"--engine-ssl-ca-certs={authority.certfile}",
        f"--engine-ssl-certfile={of_router.certfile}", f"--engine-ssl-keyfile={of_router.keyfile}",
    )  # fmt: skip
    log = tmp_path / "router.log"

    def health() -> int:
        with contextlib.suppress(httpx.TransportError):
            return plain_http.get(f"http://127.0.0.1:{port}/health").status_code
        return 0

    with _command(tmp_path / "engine.log", *engine), _command(log, *router):
        _until(lambda: "authentication failed: it refuses this router's" in log.read_text())
        refused = health()

        authority.issue("next").move_to(of_router)

        _until(lambda: health() == 200)
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=COMPLETION, timeout=60)

    assert refused == 503
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert "Ready in" in log.read_text()


@pytest.mark.parametrize("command", ["serve", "engine", "router"])
def test_a_certificate_that_cannot_be_read_is_a_clear_error(
    tiny: Path, tmp_path: Path, command: str
) -> None:
    absent = tmp_path / "absent.pem"
    ports = () if command == "engine" else ("--port=0", "--grpc-port=0")

    with _command(tmp_path / "log", command, tiny, *ports, f"--ssl-certfile={absent}") as process:
        code = process.wait()

    said = (tmp_path / "log").read_text()
    assert code == 1
    assert f"{absent}: No such file" in said
    assert "Traceback" not in said
